//! Recording of task events: which are kept, and what they change in the state of their task.

use crate::alloc::{TaskPhase, TaskState};
use crate::event::{EVENTS_KEPT_FIRST, EVENTS_KEPT_LAST, TaskEvent, TaskFact};
use crate::values::Nanos;

/// Appends an event and keeps the list within its bounds: of each run the first [`EVENTS_KEPT_FIRST`], the last
/// [`EVENTS_KEPT_LAST`] and every failing event stay. What falls between is counted in one [`TaskFact::EventsElided`], which
/// stands where the first of them stood and carries the time of the first event it counts.
///
/// `run_start` is the position of the first event of the current run; earlier events are never touched.
pub fn push_event(events: &mut Vec<TaskEvent>, run_start: usize, event: TaskEvent) {
    events.push(event);
    let first_end = run_start.saturating_add(EVENTS_KEPT_FIRST);
    // A push moves exactly one event out of the last kept ones.
    let Some(leaving) = events.len().checked_sub(EVENTS_KEPT_LAST + 1) else { return };
    if leaving < first_end {
        return;
    }
    let Some(old) = events.get(leaving) else { return };
    if old.fact.fails_task() || matches!(old.fact, TaskFact::EventsElided { .. }) {
        return;
    }
    let time = old.time;
    let counted = events.iter_mut().take(leaving).skip(first_end).find_map(|e| match &mut e.fact {
        TaskFact::EventsElided { count } => Some(count),
        _ => None,
    });
    match counted {
        Some(count) => {
            *count = count.saturating_add(1);
            events.remove(leaving);
        }
        None => {
            if let Some(slot) = events.get_mut(leaving) {
                *slot = TaskEvent { time, fact: TaskFact::EventsElided { count: 1 } };
            }
        }
    }
}

impl TaskState {
    /// Where the current run begins: each begins with [`TaskFact::Received`].
    pub fn run_start(&self) -> usize {
        self.events.iter().rposition(|e| e.fact == TaskFact::Received).unwrap_or(0)
    }

    /// Records an event by the keep rule and what it says of the task: a start makes it running and moves its start time, a
    /// restart counts and makes it pending, a failing event marks it failed. Source: `compat/lifecycle.md` section 3.
    pub fn record(&mut self, event: TaskEvent) {
        match &event.fact {
            TaskFact::Started => {
                self.state = TaskPhase::Running;
                self.started_at = Some(event.time);
            }
            TaskFact::Restarting { .. } => {
                self.state = TaskPhase::Pending;
                self.restarts = self.restarts.saturating_add(1);
                self.last_restart = Some(event.time);
            }
            _ => {}
        }
        if event.fact.fails_task() {
            self.failed = true;
        }
        let run_start = if event.fact == TaskFact::Received { self.events.len() } else { self.run_start() };
        push_event(&mut self.events, run_start, event);
    }

    /// Notes that the task is dead. The first such time stays.
    pub fn finish(&mut self, time: Nanos) {
        self.state = TaskPhase::Dead;
        self.finished_at.get_or_insert(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(time: Nanos, fails: bool) -> TaskEvent {
        let fact = if fails {
            TaskFact::NotRestarting { reason: "x".into() }
        } else {
            TaskFact::HookMessage { message: time.to_string() }
        };
        TaskEvent { time, fact }
    }

    proptest! {
        #[test]
        fn first_last_and_failing_events_stay_and_the_rest_is_counted(fails in prop::collection::vec(prop::bool::weighted(0.1), 0..300), runs in 1i64..3) {
            let mut state = TaskState::default();
            let mut all = Vec::new();
            let mut time = 0;
            for _ in 0..runs {
                state.record(TaskEvent { time, fact: TaskFact::Received });
                all.push((time, false));
                let run_first = all.len() - 1;
                time += 1;
                for fail in &fails {
                    state.record(event(time, *fail));
                    all.push((time, *fail));
                    time += 1;
                }
                let run = &all[run_first..];
                let kept: Vec<_> = state.events[state.run_start()..].iter().filter(|e| !matches!(e.fact, TaskFact::EventsElided { .. })).map(|e| e.time).collect();
                for (i, (at, fail)) in run.iter().enumerate() {
                    if i < EVENTS_KEPT_FIRST || i + EVENTS_KEPT_LAST >= run.len() || *fail {
                        prop_assert!(kept.contains(at), "event {i} of {} is gone", run.len());
                    }
                }
            }
            let elided: u64 = state.events.iter().map(|e| if let TaskFact::EventsElided { count } = e.fact { count } else { 0 }).sum();
            let kept = state.events.iter().filter(|e| !matches!(e.fact, TaskFact::EventsElided { .. })).count();
            prop_assert_eq!(kept as u64 + elided, all.len() as u64);
            prop_assert!(state.events.windows(2).all(|w| w[0].time <= w[1].time));
            let failing = all.iter().filter(|(_, f)| *f).count();
            prop_assert!(state.events.len() <= failing + runs as usize * (EVENTS_KEPT_FIRST + EVENTS_KEPT_LAST + 2));
        }
    }

    #[test]
    fn a_start_a_restart_and_a_failure_show_in_the_state() {
        let mut state = TaskState::default();
        state.record(TaskEvent { time: 1, fact: TaskFact::Received });
        state.record(TaskEvent { time: 2, fact: TaskFact::Started });
        assert_eq!((state.state, state.started_at), (TaskPhase::Running, Some(2)));
        state.record(TaskEvent { time: 3, fact: TaskFact::Restarting { reason: String::new(), delay: 1 } });
        assert_eq!((state.state, state.restarts, state.last_restart), (TaskPhase::Pending, 1, Some(3)));
        state.record(event(4, true));
        assert!(state.failed);
        state.finish(5);
        state.finish(9);
        assert_eq!((state.state, state.finished_at), (TaskPhase::Dead, Some(5)));
        assert_eq!(state.events.len(), 4);
    }
}
