//! What the processes of a task use.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// Processor use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CpuUsage {
    /// Percent of one core in kernel mode since the last look.
    pub system_mode: f64,
    /// Percent of one core in user mode since the last look.
    pub user_mode: f64,
    /// Both.
    pub percent: f64,
    /// Times it was held back by its limit.
    pub throttled_periods: u64,
    /// For how long, in nanoseconds.
    pub throttled_time: u64,
    /// Which of these were measured, in the API's words.
    pub measured: Vec<&'static str>,
}

/// Memory use, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Resident.
    pub rss: u64,
    /// Of files.
    pub cache: u64,
    /// Swapped out.
    pub swap: u64,
    /// Mapped files.
    pub mapped_file: u64,
    /// All that counts against the limit.
    pub usage: u64,
    /// The most it was.
    pub max_usage: u64,
    /// Of the kernel.
    pub kernel_usage: u64,
    /// The most that was.
    pub kernel_max_usage: u64,
    /// Which of these were measured, in the API's words.
    pub measured: Vec<&'static str>,
}

/// Use of processor and memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Processor.
    pub cpu: CpuUsage,
    /// Memory.
    pub memory: MemoryUsage,
}

/// Use of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskStats {
    /// Altogether.
    pub usage: Usage,
    /// By process.
    pub pids: BTreeMap<u32, Usage>,
    /// Unix time in nanoseconds.
    pub timestamp_ns: u64,
}

/// Clock ticks per second in `/proc`, the same on every Linux.
const TICKS: f64 = 100.0;
/// Processes of a task looked at.
const MAX_PROCESSES: usize = 65_536;

/// What was seen at the last look, to tell use since then.
#[derive(Debug, Default)]
pub(crate) struct LastLook {
    at: Option<Instant>,
    /// Process to ticks in user and kernel mode.
    ticks: BTreeMap<u32, (u64, u64)>,
}

/// One process now: ticks in user and kernel mode, resident and swapped bytes.
fn look(pid: u32) -> Option<(u64, u64, u64, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |key| {
        let line = status.lines().find_map(|l| l.strip_prefix(key));
        line.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    Some((number(11)?, number(12)?, kib("VmRSS:").saturating_mul(1024), kib("VmSwap:").saturating_mul(1024)))
}

#[allow(clippy::cast_precision_loss)] // Percentages need no 53 bits.
fn percent(ticks: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { ticks as f64 / TICKS / elapsed.as_secs_f64() * 100.0 }
}

/// Looks at these processes and compares with the last look.
pub(crate) fn measure(pids: &[u32], last: &mut LastLook) -> TaskStats {
    let now = Instant::now();
    let elapsed = last.at.map_or(Duration::ZERO, |at| now - at);
    let mut out = TaskStats { timestamp_ns: unix_ns(), ..TaskStats::default() };
    let mut ticks = BTreeMap::new();
    for pid in pids.iter().take(MAX_PROCESSES) {
        let Some((user, system, rss, swap)) = look(*pid) else { continue };
        let before = last.ticks.get(pid).copied().unwrap_or((user, system));
        let cpu = CpuUsage {
            user_mode: percent(user.saturating_sub(before.0), elapsed),
            system_mode: percent(system.saturating_sub(before.1), elapsed),
            percent: percent((user + system).saturating_sub(before.0 + before.1), elapsed),
            measured: vec!["System Mode", "User Mode", "Percent"],
            ..CpuUsage::default()
        };
        let memory = MemoryUsage { rss, swap, measured: vec!["RSS", "Swap"], ..MemoryUsage::default() };
        let total = &mut out.usage;
        total.cpu.user_mode += cpu.user_mode;
        total.cpu.system_mode += cpu.system_mode;
        total.cpu.percent += cpu.percent;
        total.memory.rss += rss;
        total.memory.swap += swap;
        ticks.insert(*pid, (user, system));
        out.pids.insert(*pid, Usage { cpu, memory });
    }
    out.usage.cpu.measured = vec!["System Mode", "User Mode", "Percent"];
    out.usage.memory.measured = vec!["RSS", "Swap"];
    *last = LastLook { at: Some(now), ticks };
    out
}

pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
