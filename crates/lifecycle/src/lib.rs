//! The pure client brain: which tasks of an allocation run when, what happens when they end, and what is told of it.
//!
//! [`step`] takes one [`Event`] and gives the [`Command`]s to carry out. The shell round it (the node) carries them out
//! and feeds the results back. Time and randomness are arguments; nothing is read from outside.
//!
//! | module | holds |
//! |---|---|
//! | [`gates`] | which roles may start: a pure function of the task states |
//! | [`task`] | the stages of one task |
//! | [`restart`] | the restart policy, and restarts in place |
//! | [`kill`] | why and in which order tasks are ended |
//! | [`status`] | outcome and client status |
//! | [`restore`] | going on after the agent was restarted |
//! | [`health`] | health of the allocation for its deployment or migration |
//!
//! Tasks and channels: none.
//!
//! Architecture invariant: no IO, no clock, no random source, no driver; equal inputs give equal outputs.
//! Architecture invariant: a task starts only from an open gate and never once its allocation is known to be stopping;
//! poststop tasks alone start then, once per run, after every other task is dead.
//! Architecture invariant: task states and events are only ever added to.
//! Architecture invariant: what must be resumed after a crash follows from the recorded state alone ([`restore::resume`]).

pub mod gates;
pub mod health;
pub mod kill;
mod message;
mod record;
pub mod restart;
pub mod restore;
mod spec;
mod state;
pub mod status;
pub mod task;
mod text;

pub use message::{Command, Event, Exit, Recovery, RestartScope};
pub use record::{EVENTS_KEPT_AT_MOST, push_event};
pub use spec::{GroupSpec, TaskRules};
pub use state::{
    AllocRecord, Ending, GroupServices, Key, KillCause, Setup, Stage, State, StopCause, TaskRecord, Tracker,
};
pub use status::View;
pub use text::go_duration;

use herdsman_model::Nanos;

/// Takes one event at `now` (nanoseconds since the Unix epoch) and gives the commands to carry out, in this order.
/// What comes after [`Command::Persist`] must not be begun before the recorded state is durable. `jitter` is any random
/// number; it spreads restart delays.
///
/// An event that names an earlier start of a task (another [`Key`]) changes nothing.
pub fn step(state: &mut State, event: Event, now: Nanos, jitter: u64) -> Vec<Command> {
    let mut out = message::Out::default();
    task::apply(state, event, now, jitter, &mut out);
    settle(state, now, &mut out);
    out.into_commands()
}

/// Follows every consequence of the current states until nothing changes any more.
fn settle(state: &mut State, now: Nanos, out: &mut message::Out) {
    kill::note_causes(state, now, out);
    loop {
        let changed = kill::progress(state, now, out)
            | restart::progress(state, now, out)
            | gates::progress(state, now, out)
            | status::progress(state, now, out);
        if !changed {
            return;
        }
        kill::note_causes(state, now, out);
    }
}
