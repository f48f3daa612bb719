//! What a container uses, as the engine tells it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

use super::client::{Engine, EngineError};
use crate::driver::DriverError;
use crate::stats::{CpuUsage, MemoryUsage, TaskStats, Usage, unix_ns};

/// What was seen at the last look: when, and nanoseconds of all, kernel and
/// user time.
pub(crate) type LastLook = Mutex<Option<(Instant, [u64; 3])>>;

pub(crate) async fn measure(engine: &Engine, container: &str, last: &LastLook) -> Result<TaskStats, DriverError> {
    let answer = engine.get(&format!("/containers/{container}/stats?stream=false&one-shot=true")).await;
    let answer = answer.map_err(|e| failed(&e))?;
    // The engine's word for nothing measured.
    if answer.get("read").and_then(Value::as_str).is_none_or(|at| at.starts_with("0001-")) {
        return Err(DriverError::NotRunning);
    }
    let now = Instant::now();
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let stats = read(&answer, now, *last);
    *last = Some((now, times(&answer)));
    Ok(stats)
}

fn failed(e: &EngineError) -> DriverError {
    if e.not_found() { DriverError::NotRunning } else { DriverError::Failed(e.to_string()) }
}

fn number(answer: &Value, at: &str) -> u64 {
    answer.pointer(at).and_then(Value::as_u64).unwrap_or(0)
}

fn times(answer: &Value) -> [u64; 3] {
    ["total_usage", "usage_in_kernelmode", "usage_in_usermode"]
        .map(|name| number(answer, &format!("/cpu_stats/cpu_usage/{name}")))
}

#[allow(clippy::cast_precision_loss)] // Percentages need no 53 bits.
fn read(answer: &Value, now: Instant, last: Option<(Instant, [u64; 3])>) -> TaskStats {
    let [total, system, user] = times(answer);
    let (since, before) = last.unwrap_or((now, [total, system, user]));
    let elapsed = now.saturating_duration_since(since).as_nanos();
    let percent = |now: u64, before: u64| {
        if elapsed == 0 { 0.0 } else { now.saturating_sub(before) as f64 / elapsed as f64 * 100.0 }
    };
    let cpu = CpuUsage {
        percent: percent(total, before[0]),
        system_mode: percent(system, before[1]),
        user_mode: percent(user, before[2]),
        throttled_periods: number(answer, "/cpu_stats/throttling_data/throttled_periods"),
        throttled_time: number(answer, "/cpu_stats/throttling_data/throttled_time"),
        measured: vec!["Throttled Periods", "Throttled Time", "Percent", "System Mode", "User Mode"],
    };
    let memory = |name: &str| number(answer, &format!("/memory_stats/stats/{name}"));
    // The names differ between the two kinds of cgroups.
    let v1 = answer.pointer("/memory_stats/stats/rss").is_some();
    let mut measured = vec!["RSS", "Cache", "Mapped File", "Usage"];
    if v1 {
        measured.extend(["Swap", "Max Usage"]);
    }
    let memory = MemoryUsage {
        rss: memory(if v1 { "rss" } else { "anon" }),
        cache: memory(if v1 { "cache" } else { "file" }),
        swap: memory("swap"),
        mapped_file: memory(if v1 { "mapped_file" } else { "file_mapped" }),
        usage: number(answer, "/memory_stats/usage"),
        max_usage: number(answer, "/memory_stats/max_usage"),
        measured,
        ..MemoryUsage::default()
    };
    TaskStats { usage: Usage { cpu, memory }, pids: BTreeMap::new(), timestamp_ns: unix_ns() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn use_since_the_last_look() {
        let answer = json!({
            "cpu_stats": {"cpu_usage": {"total_usage": 3_000, "usage_in_kernelmode": 500, "usage_in_usermode": 2_500}},
            "memory_stats": {"usage": 10, "stats": {"anon": 4, "file": 3}},
        });
        let before = Instant::now();
        let stats = read(&answer, before + Duration::from_micros(2), Some((before, [2_000, 500, 1_500])));
        assert!((stats.usage.cpu.percent - 50.0).abs() < 0.01 && stats.usage.cpu.system_mode == 0.0);
        assert_eq!((stats.usage.memory.rss, stats.usage.memory.cache, stats.usage.memory.usage), (4, 3, 10));
    }
}
