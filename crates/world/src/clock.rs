//! Time: wall clock, monotonic clock and sleeping.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

/// Wall clock time: nanoseconds since 1970-01-01T00:00:00Z. Holds up to the year 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub i64);

impl UnixNanos {
    /// Whole seconds since the epoch, rounded down.
    #[must_use]
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// This time later by `by`; stays at the end of the range when beyond it.
    #[must_use]
    pub fn plus(self, by: Duration) -> UnixNanos {
        UnixNanos(self.0.saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero when it is before it.
    #[must_use]
    pub fn since(self, earlier: UnixNanos) -> Duration {
        u64::try_from(self.0.saturating_sub(earlier.0)).map_or(Duration::ZERO, Duration::from_nanos)
    }
}

impl From<UnixNanos> for i64 {
    fn from(time: UnixNanos) -> i64 {
        time.0
    }
}

impl From<i64> for UnixNanos {
    fn from(nanos: i64) -> UnixNanos {
        UnixNanos(nanos)
    }
}

/// A point of the monotonic clock: time since this process's clock was made. Never goes back, and
/// means nothing in another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// This moment later by `by`; stays at the end of the range when beyond it.
    #[must_use]
    pub fn plus(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(by))
    }

    /// How long after `earlier` this is; zero when it is before it.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where time comes from.
#[async_trait]
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall clock time; may step either way.
    fn now(&self) -> UnixNanos;
    /// Monotonic time, for measuring and for deadlines.
    fn monotonic(&self) -> Moment;
    /// Returns after `span`; within a tokio runtime with time enabled.
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
    /// Returns once [`Clock::monotonic`] has reached `deadline`.
    async fn sleep_until(&self, deadline: Moment) {
        let left = deadline.since(self.monotonic());
        if !left.is_zero() {
            self.sleep(left).await;
        }
    }
}

/// The operating system's clock.
#[derive(Debug)]
pub struct RealClock {
    start: std::time::Instant,
}

impl RealClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    pub fn new() -> RealClock {
        RealClock { start: std::time::Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> RealClock {
        RealClock::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> UnixNanos {
        let nanos = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, i64::wrapping_neg),
        };
        UnixNanos(nanos)
    }

    fn monotonic(&self) -> Moment {
        Moment(self.start.elapsed())
    }
}

/// A clock that follows tokio's, so that a paused runtime decides how time passes. Wall clock time
/// can be stepped, as an administrator or NTP does.
#[derive(Debug)]
pub struct SimClock {
    base: i64,
    step: AtomicI64,
    start: std::sync::OnceLock<tokio::time::Instant>,
}

/// 2024-01-01T00:00:00Z.
const SIMULATED_START: i64 = 1_704_067_200_000_000_000;

impl SimClock {
    /// A clock that shows 2024-01-01T00:00:00Z when it is first read.
    #[must_use]
    pub fn new() -> SimClock {
        SimClock { base: SIMULATED_START, step: AtomicI64::new(0), start: std::sync::OnceLock::new() }
    }

    /// Steps the wall clock by `nanos`, forwards or back. Monotonic time does not notice.
    pub fn step_wall_clock(&self, nanos: i64) {
        self.step.fetch_add(nanos, Ordering::Relaxed);
    }

    fn elapsed(&self) -> Duration {
        self.start.get_or_init(tokio::time::Instant::now).elapsed()
    }
}

impl Default for SimClock {
    fn default() -> SimClock {
        SimClock::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> UnixNanos {
        UnixNanos(self.base.saturating_add(self.step.load(Ordering::Relaxed))).plus(self.elapsed())
    }

    fn monotonic(&self) -> Moment {
        Moment(self.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn simulated_time_passes_with_the_runtime() {
        let clock = SimClock::new();
        let (wall, mono) = (clock.now(), clock.monotonic());
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().since(wall), Duration::from_secs(3600));
        assert_eq!(clock.monotonic().since(mono), Duration::from_secs(3600));
        clock.step_wall_clock(-7_200_000_000_000);
        assert_eq!(clock.now().since(wall), Duration::ZERO);
        assert_eq!(clock.monotonic().since(mono), Duration::from_secs(3600));
        clock.sleep_until(mono.plus(Duration::from_secs(4000))).await;
        assert_eq!(clock.monotonic().since(mono), Duration::from_secs(4000));
    }

    #[test]
    fn arithmetic_stays_in_range() {
        assert_eq!(UnixNanos(i64::MAX).plus(Duration::MAX), UnixNanos(i64::MAX));
        assert_eq!(UnixNanos(i64::MIN).since(UnixNanos(i64::MAX)), Duration::ZERO);
        assert_eq!(UnixNanos(-1).secs(), -1);
    }

    #[test]
    fn the_real_clock_is_after_2024_and_monotonic() {
        let clock = RealClock::new();
        assert!(clock.now().0 > SIMULATED_START);
        let first = clock.monotonic();
        assert!(clock.monotonic() >= first);
    }
}
