//! What tasks and the node use, as the API shows it. Measured when asked.

use super::channel::Refusal;
use super::files::blocking;
use crate::alloc::Running;
use crate::fingerprint::{Space, space};
use crate::node::Shared;
use herdsman_drivers::{CpuUsage, MemoryUsage, TaskStats, Usage};
use herdsman_model::Name;
use herdsman_world::World;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between the two looks that processor use is told from.
const WINDOW: Duration = Duration::from_millis(100);
/// Mounts shown at most.
const MOUNTS: usize = 256;

/// Use of the running tasks of an allocation.
pub async fn alloc(shared: &Shared, running: Vec<(Name, Running)>) -> Value {
    let speed = shared.node().resources.core_speed_mhz;
    let mut tasks = Map::new();
    let mut total = Usage::default();
    for (name, (driver, handle)) in running {
        // A task that ended meanwhile uses nothing.
        let Ok(stats) = driver.stats(&handle).await else { continue };
        add(&mut total, &stats.usage);
        tasks.insert(name.to_string(), task(&stats, speed));
    }
    let timestamp = shared.world.clock.now().0;
    json!({ "ResourceUsage": usage(&total, speed, json!([])), "Tasks": tasks, "Timestamp": timestamp })
}

fn task(stats: &TaskStats, speed: i64) -> Value {
    let pids: Map<_, _> =
        stats.pids.iter().map(|(pid, used)| (pid.to_string(), usage(used, speed, Value::Null))).collect();
    json!({
        "Pids": pids,
        "ResourceUsage": usage(&stats.usage, speed, Value::Null),
        "Timestamp": stats.timestamp_ns,
    })
}

#[expect(clippy::cast_precision_loss, reason = "megahertz of a machine are far below 2^52")]
fn ticks(percent: f64, speed: i64) -> f64 {
    percent / 100.0 * speed as f64
}

fn usage(used: &Usage, speed: i64, devices: Value) -> Value {
    let Usage { cpu, memory } = used;
    json!({
        "CpuStats": {
            "SystemMode": cpu.system_mode,
            "UserMode": cpu.user_mode,
            "TotalTicks": ticks(cpu.percent, speed),
            "ThrottledPeriods": cpu.throttled_periods,
            "ThrottledTime": cpu.throttled_time,
            "Percent": cpu.percent,
            "Measured": cpu.measured,
        },
        "MemoryStats": {
            "RSS": memory.rss,
            "Cache": memory.cache,
            "Swap": memory.swap,
            "MappedFile": memory.mapped_file,
            "Usage": memory.usage,
            "MaxUsage": memory.max_usage,
            "KernelUsage": memory.kernel_usage,
            "KernelMaxUsage": memory.kernel_max_usage,
            "Measured": memory.measured,
        },
        "DeviceStats": devices,
    })
}

fn add(total: &mut Usage, one: &Usage) {
    let (cpu, memory) = (&mut total.cpu, &mut total.memory);
    *cpu = CpuUsage {
        system_mode: cpu.system_mode + one.cpu.system_mode,
        user_mode: cpu.user_mode + one.cpu.user_mode,
        percent: cpu.percent + one.cpu.percent,
        throttled_periods: cpu.throttled_periods.saturating_add(one.cpu.throttled_periods),
        throttled_time: cpu.throttled_time.saturating_add(one.cpu.throttled_time),
        measured: one.cpu.measured.clone(),
    };
    *memory = MemoryUsage {
        rss: memory.rss.saturating_add(one.memory.rss),
        cache: memory.cache.saturating_add(one.memory.cache),
        swap: memory.swap.saturating_add(one.memory.swap),
        mapped_file: memory.mapped_file.saturating_add(one.memory.mapped_file),
        usage: memory.usage.saturating_add(one.memory.usage),
        max_usage: memory.max_usage.saturating_add(one.memory.max_usage),
        kernel_usage: memory.kernel_usage.saturating_add(one.memory.kernel_usage),
        kernel_max_usage: memory.kernel_max_usage.saturating_add(one.memory.kernel_max_usage),
        measured: one.memory.measured.clone(),
    };
}

/// Use of the node: processors over a short window, memory, disks.
pub async fn node(world: &World, alloc_dir: PathBuf) -> Result<Value, Refusal> {
    let first = blocking(processors).await?;
    world.clock.sleep(WINDOW).await;
    let timestamp = world.clock.now().0;
    blocking(move || {
        let second = processors();
        let speed = f64::from(core_speed());
        let mut consumed = 0.0;
        let cpus: Vec<_> = second
            .iter()
            .filter_map(|(name, now)| {
                let share = share(first.get(name)?, now);
                consumed += share.total / 100.0 * speed;
                Some(json!({
                    "CPU": name,
                    "User": share.user,
                    "System": share.system,
                    "Idle": share.idle,
                    "TotalPercent": share.total,
                    "TotalTicks": share.total / 100.0 * speed,
                }))
            })
            .collect();
        json!({
            "AllocDirStats": disk("", "", space(&alloc_dir)),
            "CPU": cpus,
            "CPUTicksConsumed": consumed,
            "DeviceStats": null,
            "DiskStats": disks(),
            "Memory": memory(),
            "Timestamp": timestamp,
            "Uptime": uptime(),
        })
    })
    .await
}

/// Ticks of one processor: user, system, idle, all.
#[derive(Debug, Clone, Copy, Default)]
struct Ticks {
    user: u64,
    system: u64,
    idle: u64,
    all: u64,
}

struct Share {
    user: f64,
    system: f64,
    idle: f64,
    total: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a percentage needs no more than 52 bits")]
fn share(before: &Ticks, now: &Ticks) -> Share {
    let all = now.all.saturating_sub(before.all) as f64;
    let part = |a: u64, b: u64| if all > 0.0 { b.saturating_sub(a) as f64 * 100.0 / all } else { 0.0 };
    let idle = if all > 0.0 { part(before.idle, now.idle) } else { 100.0 };
    Share {
        user: part(before.user, now.user),
        system: part(before.system, now.system),
        idle,
        total: (100.0 - idle).max(0.0),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn processors() -> BTreeMap<String, Ticks> {
    let text = read("/proc/stat");
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next().filter(|name| name.starts_with("cpu") && name.len() > 3)?;
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let at = |n: usize| numbers.get(n).copied().unwrap_or(0);
        let idle = at(3).saturating_add(at(4));
        let all = numbers.iter().take(8).fold(0u64, |sum, n| sum.saturating_add(*n));
        Some((name.to_string(), Ticks { user: at(0).saturating_add(at(1)), system: at(2), idle, all }))
    });
    lines.collect()
}

/// Speed of a core, megahertz.
fn core_speed() -> u32 {
    let info = read("/proc/cpuinfo");
    let line = info.lines().find_map(|line| line.strip_prefix("cpu MHz")?.trim_start().strip_prefix(':'));
    line.and_then(|text| text.trim().split('.').next()?.parse().ok()).unwrap_or(1000)
}

fn memory() -> Value {
    let text = read("/proc/meminfo");
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
        kib.saturating_mul(1024)
    };
    let (total, free, available) = (bytes("MemTotal:"), bytes("MemFree:"), bytes("MemAvailable:"));
    let cached = bytes("Cached:").saturating_add(bytes("Buffers:")).saturating_add(bytes("SReclaimable:"));
    let used = total.saturating_sub(free).saturating_sub(cached);
    json!({ "Total": total, "Available": available, "Used": used, "Free": free })
}

fn uptime() -> u64 {
    read("/proc/uptime").split('.').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Mounts of real devices.
fn disks() -> Vec<Value> {
    let mounts = read("/proc/self/mounts");
    let points = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, point) = (words.next()?, words.next()?);
        device.starts_with("/dev/").then(|| (device.to_string(), point.to_string()))
    });
    points.take(MOUNTS).map(|(device, point)| disk(&device, &point, space(Path::new(&point)))).collect()
}

fn disk(device: &str, point: &str, space: Option<Space>) -> Value {
    let space = space.unwrap_or(Space { total: 0, free: 0, used: 0, inodes: 0, inodes_free: 0 });
    json!({
        "Device": device,
        "Mountpoint": point,
        "Size": space.total,
        "Used": space.used,
        "Available": space.free,
        "UsedPercent": space.used_percent(),
        "InodesUsedPercent": space.inodes_used_percent(),
    })
}
