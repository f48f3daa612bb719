//! What is told of the allocation: its outcome and its client status.
//!
//! The outcome is set once every task but poststop is dead with no restart left. The client status becomes terminal
//! only when the poststop tasks are dead too; until then it stays `running` and its text says that poststop runs.

use crate::kill::MAX_RUN_TEXT;
use crate::message::{Command, Out};
use crate::state::{KillCause, Setup, State};
use herdsman_model::{ClientStatus, Name, Nanos, Outcome, OutcomeKind, TaskPhase, TaskState};
use std::collections::BTreeMap;

/// What the servers are told.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub status: ClientStatus,
    pub description: String,
    pub outcome: Option<Outcome>,
    /// Of every task, always.
    pub tasks: BTreeMap<Name, TaskState>,
}

impl View {
    /// What is to be told of a state.
    pub fn of(state: &State) -> View {
        View {
            status: state.alloc.status,
            description: state.alloc.description.clone(),
            outcome: state.alloc.outcome.clone(),
            tasks: state.tasks.iter().map(|(name, task)| (Name::clone(name), task.state.clone())).collect(),
        }
    }
}

/// Client status and its text.
pub fn client_status(state: &State) -> (ClientStatus, String) {
    let overrun = state.alloc.kill == Some(KillCause::MaxRunDuration);
    if state.all_dead() {
        let cleaner_failed = state.cleaners().any(|(_, task)| task.state.failed);
        let failed = state.tasks.values().any(|task| task.state.failed);
        return match (cleaner_failed, overrun, failed) {
            (false, true, _) => (ClientStatus::Complete, MAX_RUN_TEXT.into()),
            (true, ..) | (_, _, true) => (ClientStatus::Failed, "Failed tasks".into()),
            _ => (ClientStatus::Complete, "All tasks have completed".into()),
        };
    }
    if state.work_over() {
        let outcome = state.alloc.outcome.as_ref().map_or_else(|| outcome_kind(state), |outcome| outcome.kind);
        let why = match (overrun, &state.alloc.stop, outcome) {
            (true, ..) => MAX_RUN_TEXT,
            (_, Some(stop), OutcomeKind::Stopped) => &stop.reason,
            (_, _, OutcomeKind::Failed) => "tasks failed",
            _ => "all other tasks have completed",
        };
        return (ClientStatus::Running, format!("Poststop tasks are running: {why}"));
    }
    if state.tasks.values().any(|task| task.stage.phase() == TaskPhase::Running) {
        return (ClientStatus::Running, "Tasks are running".into());
    }
    (ClientStatus::Pending, "No tasks have started".into())
}

/// How the work ended, once it is over.
fn outcome_kind(state: &State) -> OutcomeKind {
    let failed = state.workers().any(|(_, _, task)| task.state.failed);
    match &state.alloc.kill {
        Some(KillCause::MaxRunDuration) => OutcomeKind::Complete,
        _ if failed => OutcomeKind::Failed,
        Some(KillCause::Stopped) => OutcomeKind::Stopped,
        _ => OutcomeKind::Complete,
    }
}

/// Brings outcome, status and what follows the last task up to date. Gives whether anything changed.
pub(crate) fn progress(state: &mut State, now: Nanos, out: &mut Out) -> bool {
    let mut changed = false;
    if state.alloc.outcome.is_none() && state.work_over() {
        state.alloc.outcome = Some(Outcome { kind: outcome_kind(state), time: now });
        out.publish(true);
        changed = true;
    }
    let (status, description) = client_status(state);
    if status != state.alloc.status || description != state.alloc.description {
        out.publish(status != state.alloc.status || state.work_over());
        state.alloc.status = status;
        state.alloc.description = description;
        changed = true;
        // The status becomes terminal once per run, so this follows the last task once.
        if status.is_terminal() {
            finish(state, out);
        }
    }
    changed
}

/// Every task is dead: what was prepared is undone.
pub(crate) fn finish(state: &State, out: &mut Out) {
    if state.alloc.setup == Setup::Pending {
        out.now(Command::CancelSetup);
    }
    out.durably(Command::RunPostrun);
}
