//! Feeds the broker: evaluations as they are written, room as it is made, deadlines as they pass.

use super::blocked::{Blocked, Room};
use super::{next_batch, sleep_until};
use crate::feed::Batch;
use crate::server::Server;
use herdsman_model::{EvalId, EvalStatus, Evaluation, Node, Trigger};
use herdsman_state::{Body, Change, JobKey, Row, Table, UpsertEvals};
use std::sync::Arc;
use tokio::sync::broadcast;

/// How often evaluations whose plans were refused too often are tried again, nanoseconds.
const REFUSED_RETRY: i64 = 60_000_000_000;
/// The longest random wait added before an evaluation that could not be delivered is tried again, nanoseconds.
const FOLLOW_UP_SPREAD: u64 = 300_000_000_000;

pub(crate) async fn run(server: Server, mut changes: broadcast::Receiver<Arc<Batch>>) {
    let mut blocked = Blocked::default();
    rebuild(&server, &mut blocked);
    let mut refused_due = None;
    loop {
        let now = server.now();
        if !blocked.has_refused() {
            refused_due = None;
        } else if refused_due.is_none() {
            refused_due = Some(now.saturating_add(REFUSED_RETRY));
        }
        let given_up = {
            let mut broker = server.inner.leader.broker();
            if refused_due.is_some_and(|due| due <= now) {
                refused_due = None;
                for eval in blocked.unblock_refused() {
                    broker.enqueue(eval, now);
                }
            }
            broker.advance(now)
        };
        for eval in given_up {
            give_up(&server, eval).await;
        }
        let due = {
            let broker = server.inner.leader.broker();
            if broker.ready_count() > 0 {
                server.inner.leader.work.notify_waiters();
            }
            [broker.next_due(), refused_due].into_iter().flatten().min()
        };
        tokio::select! {
            biased;
            batch = next_batch(&mut changes) => match batch {
                Some(batch) => take_in(&server, &mut blocked, &batch),
                None => rebuild(&server, &mut blocked),
            },
            () = server.inner.leader.deadline.notified() => {}
            () = sleep_until(&server, due) => {}
        }
    }
}

/// Takes over what state holds. Blocked evaluations are tried once: what made room before is not remembered.
fn rebuild(server: &Server, blocked: &mut Blocked) {
    let snapshot = server.snapshot();
    let now = server.now();
    *blocked = Blocked::default();
    let mut broker = server.inner.leader.broker();
    broker.pause(snapshot.scheduler_config().pause_eval_broker);
    for eval in snapshot.evals() {
        if !eval.status.is_terminal() {
            broker.enqueue(eval.clone(), now);
        }
    }
}

fn take_in(server: &Server, blocked: &mut Blocked, batch: &Batch) {
    let mut room = Room::default();
    let now = server.now();
    let mut broker = server.inner.leader.broker();
    for change in &batch.changes {
        match change.table {
            Table::Evals => {
                let eval = match (&change.after, &change.before) {
                    (Some(Row::Eval(eval)), _) => eval,
                    (None, Some(Row::Eval(gone))) => {
                        broker.remove(gone.id);
                        blocked.remove(gone.id);
                        continue;
                    }
                    _ => continue,
                };
                blocked.remove(eval.id);
                match eval.status {
                    EvalStatus::Pending => broker.enqueue(eval.clone(), now),
                    EvalStatus::Blocked => {
                        if let Some(missed) = blocked.add(eval.clone()) {
                            broker.enqueue(missed, now);
                        }
                    }
                    _ => broker.remove(eval.id),
                }
            }
            Table::SchedulerConfig => {
                room.everything = true;
                let paused = server.snapshot().scheduler_config().pause_eval_broker;
                broker.pause(paused);
            }
            Table::NodePools => room.everything = true,
            _ => note_room(server, change, &mut room),
        }
    }
    if !room.is_empty() {
        for eval in blocked.unblock(&room, batch.index) {
            broker.enqueue(eval, now);
        }
    }
}

/// Notes the room that a change of an allocation or node makes.
fn note_room(server: &Server, change: &Change, room: &mut Room) {
    match (&change.before, &change.after) {
        (Some(Row::Alloc(before)), after) if !before.client_terminal() => {
            let over = match after {
                Some(Row::Alloc(after)) => after.client_terminal(),
                _ => true,
            };
            if over && let Some(node) = server.snapshot().node(&before.node_id) {
                room.node(node);
            }
        }
        (before, Some(Row::Node(after))) if after.is_ready() => {
            let same = matches!(before, Some(Row::Node(before)) if before.is_ready() && same_offer(before, after));
            if !same {
                room.node(after);
            }
        }
        _ => {}
    }
}

fn same_offer(before: &Node, after: &Node) -> bool {
    before.computed_class == after.computed_class
        && before.resources == after.resources
        && before.reserved == after.reserved
        && before.attributes == after.attributes
        && before.meta == after.meta
        && before.host_volumes == after.host_volumes
        && before
            .drivers
            .iter()
            .map(|(name, driver)| (name, driver.healthy))
            .eq(after.drivers.iter().map(|(name, driver)| (name, driver.healthy)))
}

/// An evaluation that no worker brought to an end fails, and another is made for later, unless its job is gone.
async fn give_up(server: &Server, eval: Arc<Evaluation>) {
    let mut failed = Evaluation::clone(&eval);
    failed.status = EvalStatus::Failed;
    failed.status_description = format!("evaluation reached delivery limit ({})", super::broker::DELIVERY_LIMIT);
    let mut evals = Vec::new();
    let key = JobKey { namespace: eval.namespace.clone(), id: eval.job_id.clone() };
    if server.snapshot().job_by_key(&key).is_some() {
        let rng = &server.world().rng;
        let wait = i64::try_from(server.config().failed_follow_up.as_nanos()).unwrap_or(i64::MAX);
        let spread = i64::try_from(rng.below(FOLLOW_UP_SPREAD)).unwrap_or(0);
        let follow_up = Evaluation {
            id: EvalId(rng.bytes16()),
            namespace: eval.namespace.clone(),
            priority: eval.priority,
            kind: eval.kind,
            triggered_by: Trigger::FailedFollowUp,
            job_id: eval.job_id.clone(),
            job_modify_index: eval.job_modify_index,
            wait: wait.saturating_add(spread),
            previous_eval: Some(eval.id),
            ..Evaluation::default()
        };
        failed.next_eval = Some(follow_up.id);
        evals.push(follow_up);
    }
    evals.push(failed);
    let id = eval.id;
    if let Err(error) = server.propose(Body::UpsertEvals(UpsertEvals { evals, ..UpsertEvals::default() })).await {
        tracing::warn!(eval = %id, %error, "an evaluation that was given up could not be marked as failed");
    }
}
