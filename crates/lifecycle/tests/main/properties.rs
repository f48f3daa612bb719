//! Each invariant of the design as a property over random task sets (to 6 tasks), restart policies, and histories of
//! exits, failures, stops, restarts, ticks, crashes and reboots.

use crate::sim::{Invariant, Sim, group, history};
use proptest::prelude::*;
use proptest::test_runner::Config;

/// Cases per property: nine of them make more than 100,000.
const CASES: u32 = 12_000;

fn run(spec: herdsman_lifecycle::GroupSpec, actions: &[(u8, u8)], replay: bool) -> Sim {
    let mut sim = Sim::new(spec);
    for (action, choice) in actions {
        sim.act(*action, *choice);
        if replay {
            sim.check_replay();
        }
    }
    sim.finish();
    sim
}

macro_rules! invariant {
    ($(#[$doc:meta])* $name:ident, $kinds:expr) => {
        proptest! {
            #![proptest_config(Config { cases: CASES, max_shrink_iters: 20_000, ..Config::default() })]
            $(#[$doc])*
            #[test]
            fn $name(spec in group(6), actions in history(60)) {
                let kinds: &[Invariant] = $kinds;
                let sim = run(spec, &actions, kinds.contains(&Invariant::Replay));
                let broken: Vec<_> = sim.broken.iter().filter(|(kind, _)| kinds.contains(kind)).collect();
                prop_assert!(broken.is_empty(), "{:#?}", broken.first());
            }
        }
    };
}

invariant!(
    /// A task starts only from an open gate.
    starts_only_from_an_open_gate,
    &[Invariant::Gate]
);
invariant!(
    /// Nothing but poststop starts once the allocation is known to be stopping, and poststop starts last.
    nothing_starts_once_stopping_is_known,
    &[Invariant::Stopping, Invariant::PoststopLast]
);
invariant!(
    /// Poststop that ended well does not run again in the same run, crashes or not.
    poststop_runs_once_per_run,
    &[Invariant::PoststopOnce]
);
invariant!(
    /// A terminal allocation has no process and no task that is not dead.
    terminal_only_when_all_is_dead,
    &[Invariant::Terminal]
);
invariant!(
    /// States and events are only added to, also across crashes.
    states_and_events_are_only_added_to,
    &[Invariant::OnlyAdded]
);
invariant!(
    /// The recorded state gives the same commands again.
    replay_gives_the_same_commands,
    &[Invariant::Replay]
);
invariant!(
    /// What ended well is not repeated, and no start happens twice or beside itself.
    nothing_is_repeated,
    &[Invariant::NotRepeated, Invariant::OneProcess]
);
invariant!(
    /// Sidecars are not signalled before main tasks.
    sidecars_are_signalled_last,
    &[Invariant::KillOrder]
);
invariant!(
    /// When drivers answer and the job is stopped, the allocation ends.
    everything_ends,
    &[Invariant::Ends]
);
