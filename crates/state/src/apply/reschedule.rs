//! Whether a failed allocation may be replaced (`compat/scheduler.md` section 8, last paragraphs).

use herdsman_model::{Allocation, Nanos, RescheduleEvent, ReschedulePolicy};

/// Whether the policy allows one more reschedule of this allocation at `now`.
pub fn reschedule_eligible(policy: Option<&ReschedulePolicy>, alloc: &Allocation, now: Nanos) -> bool {
    let Some(policy) = policy else { return false };
    if alloc.desired_transition.should_force_reschedule() || policy.unlimited {
        return true;
    }
    if policy.attempts <= 0 {
        return false;
    }
    let Some(tracker) = &alloc.reschedule_tracker else { return true };
    let since = now.saturating_sub(policy.interval);
    let attempted = tracker.events.iter().filter(|event| event.time > since).count();
    let allowed = usize::try_from(policy.attempts).unwrap_or(usize::MAX);
    attempted < allowed && next_delay(policy, &tracker.events) < policy.interval.max(1)
}

/// The delay before the next reschedule, nanoseconds.
fn next_delay(policy: &ReschedulePolicy, events: &[RescheduleEvent]) -> Nanos {
    let Some(last) = events.last() else { return policy.delay };
    let before = events.len().checked_sub(2).and_then(|place| events.get(place));
    let delay = match policy.delay_function.as_str() {
        "exponential" => last.delay.saturating_mul(2),
        "fibonacci" => match before {
            None => last.delay,
            // After the longest delay the row starts again.
            Some(before) if before.delay == policy.max_delay && last.delay == policy.delay => last.delay,
            Some(before) => last.delay.saturating_add(before.delay),
        },
        _ => policy.delay,
    };
    if policy.max_delay > 0 && delay > policy.max_delay { policy.max_delay } else { delay }
}
