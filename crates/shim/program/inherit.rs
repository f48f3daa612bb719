//! Shedding what the agent's service was given: what a task gets does not
//! depend on how the agent was started.

use crate::identity;
use crate::sys;

/// The first process of the system, whose limits are the system's own.
const INIT: i32 = 1;
/// Kinds of limits there are (`RLIM_NLIMITS`).
const LIMITS: u32 = 16;
const RLIMIT_CORE: u32 = 4;
const RLIMIT_NOFILE: u32 = 7;
/// Open files: enough for servers that do not raise it themselves, and as far
/// as others may raise it. The first process may have a billion, over which
/// programs that close every number they could have open would take minutes.
const OPEN_FILES: (u64, u64) = (65_536, 524_288);

/// Takes the system's limits, scheduling and `oom_score_adj` in place of those
/// of the agent's service. What may not be changed stays.
pub fn shed() {
    for resource in 0..LIMITS {
        if let Ok((soft, hard)) = sys::limit_of(INIT, resource) {
            let (soft, hard) = adjusted(resource, soft, hard);
            set_as_far_as_may_be(resource, soft, hard);
        }
    }
    sys::schedule_as_usual();
    let _ = identity::write_oom_score(0);
}

/// Without the capability a hard limit cannot be raised, but the soft one can
/// up to it.
fn set_as_far_as_may_be(resource: u32, soft: u64, hard: u64) {
    if sys::set_limit(resource, soft, hard).is_err()
        && let Ok((_, own)) = sys::limit_of(0, resource)
    {
        let _ = sys::set_limit(resource, soft.min(own), hard.min(own));
    }
}

fn adjusted(resource: u32, soft: u64, hard: u64) -> (u64, u64) {
    match resource {
        RLIMIT_NOFILE => (OPEN_FILES.0.min(hard), OPEN_FILES.1.min(hard)),
        // Dumps are taken when asked for. A collector gets them all the same.
        RLIMIT_CORE => (0, hard),
        _ => (soft, hard),
    }
}
