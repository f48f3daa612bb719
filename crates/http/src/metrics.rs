//! What the API measures itself, in intervals as the peer's in-memory sink keeps them.

use herdsman_world::Clock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Length of an interval. Source: `telemetry.in_memory_collection_interval`.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// Aggregate of one name within an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Aggregate {
    pub count: u64,
    pub sum: f64,
    pub square_sum: f64,
    pub min: f64,
    pub max: f64,
}

impl Aggregate {
    fn add(&mut self, value: f64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = if self.count == 0 { value } else { self.max.max(value) };
        self.count += 1;
        self.sum += value;
        self.square_sum += value * value;
    }

    /// The mean; 0 of nothing.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.number() }
    }

    /// The sample standard deviation; 0 of one value.
    pub fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.number();
        ((self.square_sum - self.sum * self.sum / n) / (n - 1.0)).max(0.0).sqrt()
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of an interval is far below 2^52")]
    fn number(&self) -> f64 {
        self.count as f64
    }
}

/// What was measured in a time: things that happened, and how long or large they were.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    pub counters: BTreeMap<&'static str, Aggregate>,
    pub samples: BTreeMap<&'static str, Aggregate>,
}

/// The interval being filled, the last full one, and totals since the start.
#[derive(Debug, Default)]
struct Kept {
    begun: Option<tokio::time::Instant>,
    current: Measured,
    last: Measured,
    totals: Measured,
}

/// Counters and samples of this agent's API.
#[derive(Debug)]
pub struct Metrics {
    kept: Mutex<Kept>,
    clock: Arc<dyn Clock>,
    /// When the agent started, nanoseconds since the Unix epoch.
    started: i64,
}

impl Metrics {
    /// Nothing measured yet.
    pub fn new(clock: Arc<dyn Clock>) -> Metrics {
        Metrics { kept: Mutex::default(), started: clock.now().0, clock }
    }

    /// When the agent started, nanoseconds since the Unix epoch.
    pub fn started(&self) -> i64 {
        self.started
    }

    /// The time, nanoseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        self.clock.now().0
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something happened, under a name of the program.
    pub fn count(&self, name: &'static str) {
        let mut kept = self.kept();
        kept.turn();
        kept.current.counters.entry(name).or_default().add(1.0);
        kept.totals.counters.entry(name).or_default().add(1.0);
    }

    /// Notes a value under a name of the program.
    pub fn sample(&self, name: &'static str, value: f64) {
        let mut kept = self.kept();
        kept.turn();
        kept.current.samples.entry(name).or_default().add(value);
        kept.totals.samples.entry(name).or_default().add(value);
    }

    /// Notes a request that came.
    pub fn request(&self) {
        self.count("nomad.http.requests");
    }

    /// Notes an answered request: how long it took, and whether it failed on our side.
    pub fn measure(&self, status: u16, took: Duration) {
        self.sample("nomad.http.request", took.as_secs_f64() * 1000.0);
        if status >= 500 {
            self.count("nomad.http.requests_failed");
        }
    }

    /// The last full interval; as long as nothing is in one, what the current holds so far.
    pub fn interval(&self) -> Measured {
        let mut kept = self.kept();
        kept.turn();
        if kept.last == Measured::default() { kept.current.clone() } else { kept.last.clone() }
    }

    /// Everything since the agent started.
    pub fn totals(&self) -> Measured {
        self.kept().totals.clone()
    }
}

impl Kept {
    /// Begins a new interval when the current one is over.
    fn turn(&mut self) {
        let now = tokio::time::Instant::now();
        let begun = *self.begun.get_or_insert(now);
        if now.duration_since(begun) >= INTERVAL {
            self.last = std::mem::take(&mut self.current);
            self.begun = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn intervals_turn() {
        let metrics = Metrics::new(herdsman_world::World::simulated(1).clock);
        metrics.measure(200, Duration::from_millis(2));
        metrics.measure(500, Duration::from_millis(4));
        tokio::time::advance(INTERVAL).await;
        let last = metrics.interval();
        let requests = last.samples.get("nomad.http.request").unwrap();
        assert_eq!((requests.count, requests.min, requests.max), (2, 2.0, 4.0));
        assert!((requests.mean() - 3.0).abs() < 1e-9 && (requests.deviation() - 2f64.sqrt()).abs() < 1e-9);
        assert_eq!(last.counters.get("nomad.http.requests_failed").unwrap().count, 1);
        metrics.measure(200, Duration::from_millis(1));
        assert_eq!(metrics.totals().samples.get("nomad.http.request").unwrap().count, 3);
    }
}
