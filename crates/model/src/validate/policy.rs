//! Rules of the policies: periodic, parameterized, update, migrate, restart, reschedule, disconnect, scaling.

use super::Errors;
use crate::job::{
    DisconnectStrategy, MigrateStrategy, ParameterizedConfig, PeriodicConfig, ReschedulePolicy, RestartPolicy,
    ScalingPolicy, UpdateStrategy,
};
use crate::values::{Nanos, SECOND, duration_text};
use herdsman_expr::cron::{Cron, Zone};

/// Most reschedules whose times are added up.
const MAX_COUNTED_ATTEMPTS: i64 = 10_000;

pub(super) fn periodic(periodic: &PeriodicConfig) -> Errors {
    let mut errors = Errors::default();
    let specs: Vec<&str> = match (periodic.spec.as_str(), periodic.specs.is_empty()) {
        ("", true) => Vec::new(),
        ("", false) => periodic.specs.iter().map(String::as_str).collect(),
        (spec, true) => vec![spec],
        (_, false) => {
            errors.add("Only cron or crons may be used");
            return errors;
        }
    };
    errors.check(specs.is_empty(), || "Must specify a spec".to_string());
    if !periodic.time_zone.is_empty()
        && let Err(error) = Zone::named(&periodic.time_zone)
    {
        errors.add(format!("Invalid time zone {:?}: {error}", periodic.time_zone));
    }
    if !matches!(periodic.spec_type.as_str(), "cron" | "_internal_test") {
        errors.add(format!("Unknown periodic specification type {:?}", periodic.spec_type));
        return errors;
    }
    for spec in specs.into_iter().filter(|_| periodic.spec_type == "cron") {
        if let Err(error) = Cron::parse(spec) {
            errors.add(format!("Invalid cron spec {spec:?}: {error}"));
        }
    }
    errors
}

pub(super) fn parameterized(config: &ParameterizedConfig) -> Errors {
    let mut errors = Errors::default();
    errors.check(!matches!(config.payload.as_str(), "optional" | "required" | "forbidden"), || {
        format!("Unknown payload requirement: {:?}", config.payload)
    });
    let both: Vec<&str> =
        config.meta_required.iter().filter(|k| config.meta_optional.contains(k)).map(String::as_str).collect();
    errors.check(!both.is_empty(), || {
        format!(
            "Required and optional meta keys should be disjoint. Following keys exist in both: [{}]",
            both.join(" ")
        )
    });
    errors
}

pub(super) fn update(update: &UpdateStrategy, errors: &mut Errors) {
    let (healthy, progress) = (duration_text(update.healthy_deadline), duration_text(update.progress_deadline));
    errors.check(!matches!(update.health_check.as_str(), "checks" | "task_states" | "manual"), || {
        format!("Invalid health check given: {:?}", update.health_check)
    });
    errors.check(update.max_parallel < 0, || {
        format!("Max parallel can not be less than zero: {} < 0", update.max_parallel)
    });
    errors.check(update.canary < 0, || format!("Canary count can not be less than zero: {} < 0", update.canary));
    errors.check(update.canary == 0 && update.auto_promote, || {
        "Auto Promote requires a Canary count greater than zero".to_string()
    });
    errors.check(update.min_healthy_time < 0, || {
        format!("Minimum healthy time may not be less than zero: {}", duration_text(update.min_healthy_time))
    });
    errors.check(update.healthy_deadline <= 0, || format!("Healthy deadline must be greater than zero: {healthy}"));
    errors.check(update.progress_deadline < 0, || {
        format!("Progress deadline must be zero or greater than zero: {progress}")
    });
    errors.check(update.min_healthy_time >= update.healthy_deadline, || {
        format!(
            "Minimum healthy time must be less than healthy deadline: {} > {healthy}",
            duration_text(update.min_healthy_time)
        )
    });
    errors.check(update.progress_deadline != 0 && update.healthy_deadline >= update.progress_deadline, || {
        format!("Healthy deadline must be less than progress deadline: {healthy} > {progress}")
    });
    errors
        .check(update.stagger <= 0, || format!("Stagger must be greater than zero: {}", duration_text(update.stagger)));
}

pub(super) fn migrate(migrate: &MigrateStrategy, errors: &mut Errors) {
    errors.check(migrate.max_parallel < 0, || format!("MaxParallel must be >= 0 but found {}", migrate.max_parallel));
    errors.check(!matches!(migrate.health_check.as_str(), "checks" | "task_states"), || {
        format!("Invalid HealthCheck: {:?}", migrate.health_check)
    });
    errors.check(migrate.min_healthy_time < 0, || {
        format!("MinHealthyTime is {} and must be >= 0", duration_text(migrate.min_healthy_time))
    });
    errors.check(migrate.healthy_deadline < 0, || {
        format!("HealthyDeadline is {} and must be >= 0", duration_text(migrate.healthy_deadline))
    });
    errors.check(migrate.min_healthy_time > migrate.healthy_deadline, || {
        "MinHealthyTime must be less than HealthyDeadline".to_string()
    });
}

pub(super) fn restart(policy: &RestartPolicy, errors: &mut Errors) {
    errors.check(!matches!(policy.mode.as_str(), "fail" | "delay"), || {
        format!("Unsupported restart mode: {:?}", policy.mode)
    });
    errors
        .check(policy.attempts < 0, || format!("Restart attempts can not be less than zero: {} < 0", policy.attempts));
    errors.check(policy.attempts == 0 && policy.mode != "fail", || {
        format!("Restart policy {:?} with {} attempts is ambiguous", policy.mode, policy.attempts)
    });
    errors.check(policy.interval < 5 * SECOND, || {
        format!("Interval can not be less than 5s (got {})", duration_text(policy.interval))
    });
    errors.check(policy.attempts.saturating_mul(policy.delay) > policy.interval, || {
        format!(
            "Nomad can't restart the TaskGroup {} times in an interval of {} with a delay of {}",
            policy.attempts,
            duration_text(policy.interval),
            duration_text(policy.delay)
        )
    });
    errors.check(policy.delay < 0, || format!("Delay can not be negative (got {})", duration_text(policy.delay)));
}

pub(super) fn reschedule(policy: &ReschedulePolicy, errors: &mut Errors) {
    if policy.attempts == 0 && !policy.unlimited {
        return;
    }
    let before = errors.0.len();
    errors.check(policy.attempts < 0, || format!("Attempts can not be less than zero: {} < 0", policy.attempts));
    if policy.attempts > 0 {
        errors.check(policy.interval <= 0, || "Interval must be a non zero value if Attempts > 0".to_string());
        if policy.unlimited {
            errors.add(format!(
                "Reschedule Policy with Attempts = {}, Interval = {}, and Unlimited = true is ambiguous",
                policy.attempts,
                duration_text(policy.interval)
            ));
            errors.add("If Attempts >0, Unlimited cannot also be set to true");
        }
    }
    errors.check(policy.delay < 5 * SECOND, || {
        format!("Delay cannot be less than 5s (got {})", duration_text(policy.delay))
    });
    if !matches!(policy.delay_function.as_str(), "constant" | "exponential" | "fibonacci") {
        errors.add(format!(
            "Invalid delay function {:?}, must be one of [\"constant\" \"exponential\" \"fibonacci\"]",
            policy.delay_function
        ));
    }
    if policy.delay_function != "constant" {
        errors.check(policy.max_delay < 5 * SECOND, || {
            format!("Max Delay cannot be less than 5s (got {})", duration_text(policy.max_delay))
        });
        errors.check(policy.max_delay >= 5 * SECOND && policy.max_delay < policy.delay, || {
            format!(
                "Max Delay cannot be less than Delay {} (got {})",
                duration_text(policy.delay),
                duration_text(policy.max_delay)
            )
        });
    }
    errors.check(!policy.unlimited && policy.interval > 0 && policy.interval < 15 * SECOND, || {
        format!("Interval cannot be less than 15s (got {})", duration_text(policy.interval))
    });
    if !policy.unlimited && errors.0.len() == before {
        reschedule_fits(policy, errors);
    }
}

/// The attempts must fit in the interval.
fn reschedule_fits(policy: &ReschedulePolicy, errors: &mut Errors) {
    let (mut used, mut fitting) = (0i64, 0i64);
    let mut delays = Delays::new(policy);
    for attempt in 1..=policy.attempts.min(MAX_COUNTED_ATTEMPTS) {
        used = used.saturating_add(delays.next_delay());
        if used <= policy.interval {
            fitting = attempt;
        }
    }
    // An exponential delay is counted by doublings, as the peer does; it allows some more.
    let doublings = {
        let (mut reach, mut count) = (policy.delay.max(1), 0i64);
        while reach < policy.interval {
            reach = reach.saturating_mul(2);
            count += 1;
        }
        count + 1
    };
    let allowed = if policy.delay_function == "exponential" { fitting.max(doublings) } else { fitting };
    if policy.attempts <= allowed {
        return;
    }
    let ceiling = if policy.delay_function == "constant" {
        String::new()
    } else {
        format!(", and delay ceiling {}", duration_text(policy.max_delay))
    };
    errors.add(format!(
        "Nomad can only make {allowed} attempts in {} with initial delay {}, delay function {:?}{ceiling}",
        duration_text(policy.interval),
        duration_text(policy.delay),
        policy.delay_function
    ));
    errors.add(format!(
        "Set the interval to at least {} to accommodate {} attempts",
        duration_text(used),
        policy.attempts
    ));
}

/// The delays of one attempt after the other.
struct Delays<'a> {
    policy: &'a ReschedulePolicy,
    last: Nanos,
    before: Nanos,
}

impl<'a> Delays<'a> {
    fn new(policy: &'a ReschedulePolicy) -> Self {
        Delays { policy, last: 0, before: 0 }
    }

    fn next_delay(&mut self) -> Nanos {
        let next = match (self.policy.delay_function.as_str(), self.last) {
            (_, 0) => self.policy.delay,
            ("exponential", last) => last.saturating_mul(2),
            ("fibonacci", last) => last.saturating_add(self.before),
            _ => self.policy.delay,
        };
        let next = if self.policy.delay_function == "constant" { next } else { next.min(self.policy.max_delay) };
        self.before = self.last;
        self.last = next;
        next
    }
}

pub(super) fn disconnect(strategy: &DisconnectStrategy, errors: &mut Errors) {
    errors.check(strategy.lost_after > 0 && strategy.stop_on_client_after.is_some(), || {
        "Disconnect cannot be configured with both lost_after and stop_after".to_string()
    });
    errors.check(strategy.lost_after < 0, || "lost_after cannot be a negative duration".to_string());
    errors.check(strategy.stop_on_client_after.is_some_and(|d| d < 0), || {
        "stop_on_client_after cannot be a negative duration".to_string()
    });
    let known = ["", "best_score", "keep_original", "keep_replacement", "longest_running"];
    errors.check(!known.contains(&strategy.reconcile.as_str()), || {
        format!("reconcile option is invalid: {}", strategy.reconcile)
    });
}

/// The scaling policy of a group with this count.
pub(super) fn scaling(policy: &ScalingPolicy, count: i64) -> Errors {
    let mut errors = Errors::default();
    errors.check(!matches!(policy.kind.as_str(), "" | "horizontal"), || {
        format!("Scaling policy invalid: type {:?} is not one of: horizontal", policy.kind)
    });
    errors.check(policy.max < 0, || {
        "Scaling policy invalid: maximum count must be specified and non-negative".to_string()
    });
    errors.check(policy.min < 0, || "Scaling policy invalid: minimum count must be non-negative".to_string());
    errors.check(policy.max >= 0 && policy.max < policy.min, || {
        "Scaling policy invalid: maximum count must not be less than minimum count".to_string()
    });
    errors.check(count < policy.min, || {
        "Scaling policy invalid: task group count must not be less than minimum count in scaling policy".to_string()
    });
    errors.check(policy.max >= 0 && count > policy.max, || {
        "Scaling policy invalid: task group count must not be greater than maximum count in scaling policy".to_string()
    });
    errors
}
