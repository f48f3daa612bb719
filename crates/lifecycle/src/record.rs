//! Adding to what is known of a task. Nothing else writes a [`herdsman_model::TaskState`].

use crate::state::TaskRecord;
use herdsman_model::{EVENTS_KEPT_FIRST, EVENTS_KEPT_LAST, Nanos, TaskEvent, TaskFact, TaskPhase};

/// Failing events beyond this many are counted like others, so that the list has an end.
const FAILING_KEPT: usize = 100;

/// No task keeps more events than this.
pub const EVENTS_KEPT_AT_MOST: usize = EVENTS_KEPT_FIRST + 1 + FAILING_KEPT + EVENTS_KEPT_LAST;

impl TaskRecord {
    /// Adds an event and what it says about the task.
    pub(crate) fn note(&mut self, fact: TaskFact, now: Nanos) {
        if fact.fails_task() {
            self.state.failed = true;
        }
        if let TaskFact::Restarting { .. } = fact {
            self.state.restarts = self.state.restarts.saturating_add(1);
            self.state.last_restart = Some(now);
        }
        push_event(&mut self.state.events, TaskEvent { time: now, fact });
    }

    /// Brings the visible state up to the stage.
    pub(crate) fn show(&mut self, now: Nanos) {
        let phase = self.stage.phase();
        if phase == self.state.state {
            return;
        }
        self.state.state = phase;
        match phase {
            TaskPhase::Running => self.state.started_at = Some(now),
            TaskPhase::Dead if self.state.finished_at.is_none() => self.state.finished_at = Some(now),
            TaskPhase::Dead | TaskPhase::Pending => {}
        }
    }
}

/// Adds an event: the first [`EVENTS_KEPT_FIRST`], the last [`EVENTS_KEPT_LAST`] and every failing one stay, what falls
/// between is counted in one [`TaskFact::EventsElided`].
pub fn push_event(events: &mut Vec<TaskEvent>, event: TaskEvent) {
    events.push(event);
    let middle_end = events.len().saturating_sub(EVENTS_KEPT_LAST);
    let Some(middle) = events.get(EVENTS_KEPT_FIRST..middle_end) else { return };
    let is_marker = |e: &TaskEvent| matches!(e.fact, TaskFact::EventsElided { .. });
    let failing = middle.iter().filter(|e| e.fact.fails_task()).count();
    let drop_at = middle.iter().position(|e| !is_marker(e) && (failing > FAILING_KEPT || !e.fact.fails_task()));
    let Some(drop_at) = drop_at.map(|offset| EVENTS_KEPT_FIRST + offset) else { return };
    let has_marker = middle.first().is_some_and(is_marker);
    let time = events.remove(drop_at).time;
    if has_marker {
        if let Some(TaskEvent { fact: TaskFact::EventsElided { count }, .. }) = events.get_mut(EVENTS_KEPT_FIRST) {
            *count = count.saturating_add(1);
        }
    } else {
        events.insert(EVENTS_KEPT_FIRST, TaskEvent { time, fact: TaskFact::EventsElided { count: 1 } });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_last_and_failing_events_stay_and_the_rest_is_counted() {
        let mut events = Vec::new();
        for n in 0..1000 {
            let fact = match n {
                100 => TaskFact::NotRestarting { reason: "x".into() },
                _ => TaskFact::Driver { message: n.to_string() },
            };
            push_event(&mut events, TaskEvent { time: n, fact });
        }
        let times: Vec<_> = events.iter().map(|e| e.time).collect();
        assert_eq!(times[..10], (0..10).collect::<Vec<_>>());
        assert_eq!(events[10].fact, TaskFact::EventsElided { count: 1000 - 10 - 50 - 1 });
        assert_eq!(times[11], 100);
        assert_eq!(times[12..], (950..1000).collect::<Vec<_>>());
    }

    #[test]
    fn the_list_has_an_end() {
        let mut events = Vec::new();
        for n in 0..5000 {
            push_event(&mut events, TaskEvent { time: n, fact: TaskFact::NotRestarting { reason: String::new() } });
            assert!(events.len() <= EVENTS_KEPT_AT_MOST);
        }
    }
}
