//! Whether and when a failed allocation is placed anew.

use herdsman_model::{Allocation, Nanos, RescheduleEvent, ReschedulePolicy, RescheduleTracker};

/// Events kept in the tracker of an allocation that is rescheduled without limit.
const UNLIMITED_EVENTS_KEPT: usize = 5;

/// When its work ended: the outcome's time, else the last end of a task, else its last change.
pub fn fail_time(alloc: &Allocation) -> Nanos {
    if let Some(outcome) = &alloc.outcome {
        return outcome.time;
    }
    alloc.task_states.values().filter_map(|s| s.finished_at).max().unwrap_or(alloc.modify_time)
}

fn events(alloc: &Allocation) -> &[RescheduleEvent] {
    alloc.reschedule_tracker.as_ref().map_or(&[], |t| t.events.as_slice())
}

/// How long after its failure it is placed anew.
pub fn next_delay(alloc: &Allocation, policy: &ReschedulePolicy) -> Nanos {
    let events = events(alloc);
    let Some(last) = events.last() else { return policy.delay };
    let before = events.len().checked_sub(2).and_then(|i| events.get(i));
    let delay = match policy.delay_function.as_str() {
        "exponential" => last.delay.saturating_mul(2),
        "fibonacci" => match before {
            None => policy.delay,
            // The delay had reached its bound and began anew.
            Some(before) if before.delay == policy.max_delay && last.delay == policy.delay => last.delay,
            Some(before) => last.delay.saturating_add(before.delay),
        },
        _ => return policy.delay,
    };
    if policy.max_delay <= 0 || delay <= policy.max_delay {
        return delay;
    }
    // It ran for longer than the longest delay before it failed again: it begins anew.
    let ran = fail_time(alloc).saturating_sub(last.time);
    if ran > policy.max_delay { policy.delay } else { policy.max_delay }
}

/// Whether the policy allows one more reschedule.
pub fn reschedule_allowed(alloc: &Allocation, policy: &ReschedulePolicy) -> bool {
    if policy.unlimited {
        return true;
    }
    if policy.attempts <= 0 {
        return false;
    }
    let failed = fail_time(alloc);
    let attempted = events(alloc).iter().filter(|e| failed.saturating_sub(e.time) < policy.interval).count();
    i64::try_from(attempted).unwrap_or(i64::MAX) < policy.attempts && next_delay(alloc, policy) < policy.interval
}

/// The tracker of the allocation that takes the place of `alloc`.
pub(crate) fn next_tracker(alloc: &Allocation, policy: Option<&ReschedulePolicy>, now: Nanos) -> RescheduleTracker {
    let earlier = events(alloc);
    let (kept, delay): (Vec<RescheduleEvent>, Nanos) = match policy {
        Some(p) if p.unlimited => {
            // With the new one there are as many as are kept.
            let skip = earlier.len().saturating_sub(UNLIMITED_EVENTS_KEPT - 1);
            (earlier.iter().skip(skip).cloned().collect(), next_delay(alloc, p))
        }
        Some(p) => {
            let recent = earlier.iter().filter(|e| now.saturating_sub(e.time) < p.interval);
            (recent.cloned().collect(), next_delay(alloc, p))
        }
        None => (earlier.to_vec(), 0),
    };
    let event = RescheduleEvent { time: now, prev_alloc: alloc.id, prev_node: alloc.node_id, delay };
    RescheduleTracker {
        events: kept.into_iter().chain([event]).collect(),
        last_reschedule: crate::texts::RESCHEDULED.to_owned(),
    }
}
