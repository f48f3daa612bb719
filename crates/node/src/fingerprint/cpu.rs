//! Cores, their speed, and how they are spread over memory nodes.

use super::read;
use crate::config::NodeConfig;
use herdsman_model::NodeResources;
use std::collections::BTreeMap;

/// Speed assumed of a core when the host does not tell, megahertz.
const FALLBACK_MHZ: i64 = 1000;

pub(super) fn fingerprint(
    config: &NodeConfig,
    attributes: &mut BTreeMap<String, String>,
    resources: &mut NodeResources,
) {
    let info = read("/proc/cpuinfo");
    let field = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
    let online = parse_cores(&read("/sys/devices/system/cpu/online"));
    let cores = if online.is_empty() { vec![0] } else { online };
    let khz = read("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
    let max_khz = read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
    let from_info = || field("cpu MHz").and_then(|text| text.trim().split('.').next()?.parse::<i64>().ok());
    let from_file = |text: &str| text.parse::<i64>().ok().map(|khz| khz / 1000);
    let speed = from_file(&khz).or_else(|| from_file(&max_khz)).or_else(from_info);
    let speed = speed.filter(|mhz| *mhz > 0).unwrap_or(FALLBACK_MHZ);
    let count = i64::try_from(cores.len()).unwrap_or(1);
    let total = match config.cpu_total_compute {
        set if set > 0 => set,
        _ => speed.saturating_mul(count),
    };
    let mut set = |key: &str, value: String| drop(attributes.insert(key.into(), value));
    set("cpu.arch", arch().into());
    if let Some(model) = field("model name") {
        set("cpu.modelname", model.trim().into());
    }
    set("cpu.frequency", speed.to_string());
    set("cpu.numcores", count.to_string());
    let mut reservable = cores.clone();
    if !config.reservable_cores.is_empty() {
        reservable.retain(|core| config.reservable_cores.contains(core));
    }
    set("cpu.reservablecores", reservable.len().to_string());
    set("cpu.totalcompute", total.to_string());
    set("cpu.usablecompute", total.saturating_sub(config.reserved.cpu_shares).max(0).to_string());
    let nodes = parse_cores(&read("/sys/devices/system/node/online"));
    set("numa.node.count", nodes.len().max(1).to_string());
    for node in &nodes {
        let list = read(&format!("/sys/devices/system/node/node{node}/cpulist"));
        set(&format!("numa.node{node}.cores"), list);
    }
    resources.cpu_shares = total;
    resources.total_cores = u16::try_from(cores.len()).unwrap_or(u16::MAX);
    resources.reservable_cores = reservable;
    resources.core_speed_mhz = speed;
}

/// The architecture in Go's words, as jobs constrain on it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// A kernel list of numbers: `0-3,8`.
pub(crate) fn parse_cores(text: &str) -> Vec<u16> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u16>().ok()?..=to.parse::<u16>().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_read() {
        assert_eq!(parse_cores("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(parse_cores("0"), [0]);
        assert!(parse_cores("").is_empty());
        assert!(parse_cores("x-y,3-1").is_empty());
    }
}
