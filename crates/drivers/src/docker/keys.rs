//! The keys of a task's `config` block, and what may stand there.

use serde_json::Value;

use super::image::ImageName;
use crate::config::Config;
use crate::schema::{self, ConfigError, Key, Kind, key, required};

const MOUNT: &[Key] = &[
    key("type", Kind::Str),
    key("target", Kind::Str),
    key("source", Kind::Str),
    key("readonly", Kind::Bool),
    key("bind_options", Kind::Blocks(&[key("propagation", Kind::Str)])),
    key("tmpfs_options", Kind::Blocks(&[key("size", Kind::Num), key("mode", Kind::Num)])),
    key(
        "volume_options",
        Kind::Blocks(&[
            key("no_copy", Kind::Bool),
            key("labels", Kind::StrMap),
            key("driver_config", Kind::Blocks(&[key("name", Kind::Str), key("options", Kind::StrMap)])),
        ]),
    ),
];

const LOGGING: &[Key] = &[key("type", Kind::Str), key("driver", Kind::Str), key("config", Kind::StrMap)];

const AUTH: &[Key] = &[
    key("username", Kind::Str),
    key("password", Kind::Str),
    key("email", Kind::Str),
    key("server_address", Kind::Str),
];

const DEVICE: &[Key] =
    &[required("host_path", Kind::Str), key("container_path", Kind::Str), key("cgroup_permissions", Kind::Str)];

pub(crate) const KEYS: &[Key] = &[
    required("image", Kind::Str),
    key("advertise_ipv6_address", Kind::Bool),
    key("args", Kind::StrList),
    key("auth", Kind::Blocks(AUTH)),
    key("auth_soft_fail", Kind::Bool),
    key("cap_add", Kind::StrList),
    key("cap_drop", Kind::StrList),
    key("cgroupns", Kind::Str),
    key("command", Kind::Str),
    key("container_exists_attempts", Kind::Num),
    key("cpu_cfs_period", Kind::Num),
    key("cpu_hard_limit", Kind::Bool),
    key("cpuset_cpus", Kind::Str),
    key("devices", Kind::Blocks(DEVICE)),
    key("dns_options", Kind::StrList),
    key("dns_search_domains", Kind::StrList),
    key("dns_servers", Kind::StrList),
    key("entrypoint", Kind::StrList),
    key("extra_hosts", Kind::StrList),
    key("force_pull", Kind::Bool),
    key("group_add", Kind::StrList),
    key("healthchecks", Kind::Blocks(&[key("disable", Kind::Bool)])),
    key("hostname", Kind::Str),
    key("image_pull_timeout", Kind::Duration),
    key("init", Kind::Bool),
    key("interactive", Kind::Bool),
    key("ipc_mode", Kind::Str),
    key("ipv4_address", Kind::Str),
    key("ipv6_address", Kind::Str),
    key("isolation", Kind::Str),
    key("labels", Kind::StrMap),
    key("load", Kind::Str),
    key("logging", Kind::Blocks(LOGGING)),
    key("mac_address", Kind::Str),
    key("memory_hard_limit", Kind::Num),
    key("mount", Kind::Blocks(MOUNT)),
    key("mounts", Kind::Blocks(MOUNT)),
    key("network_aliases", Kind::StrList),
    key("network_mode", Kind::Str),
    key("oom_score_adj", Kind::Num),
    key("pid_mode", Kind::Str),
    key("pids_limit", Kind::Num),
    key("port_map", Kind::NumMap),
    key("ports", Kind::StrList),
    key("privileged", Kind::Bool),
    key("readonly_rootfs", Kind::Bool),
    key("runtime", Kind::Str),
    key("security_opt", Kind::StrList),
    key("shm_size", Kind::Num),
    key("storage_opt", Kind::StrMap),
    key("sysctl", Kind::StrMap),
    key("tty", Kind::Bool),
    key("ulimit", Kind::StrMap),
    key("userns_mode", Kind::Str),
    key("uts_mode", Kind::Str),
    key("volume_driver", Kind::Str),
    key("volumes", Kind::StrList),
    key("work_dir", Kind::Str),
];

/// The range of `cpu_cfs_period` in microseconds, the kernel's.
const CFS_PERIODS: std::ops::RangeInclusive<i64> = 1_000..=1_000_000;

/// Still to be interpolated.
fn open(text: &str) -> bool {
    text.contains("${")
}

/// Checks a `config` block.
pub(crate) fn check(value: &Value) -> Result<(), ConfigError> {
    schema::check(KEYS, value)?;
    let config = Config::new(value);
    let mut problems = Vec::new();
    let image = config.text_or_empty("image");
    if image.is_empty() {
        problems.push("image name required for docker driver".to_owned());
    } else if !open(&image)
        && let Err(e) = ImageName::parse(&image)
    {
        problems.push(e);
    }
    let command = config.text_or_empty("command");
    if command.trim() != command {
        problems.push(format!("command {command:?} must not begin or end with blanks"));
    }
    if let Some(period) = config.number("cpu_cfs_period").filter(|p| *p != 0 && !CFS_PERIODS.contains(p)) {
        problems.push(format!("cpu_cfs_period {period} must be from 1000 to 1000000 (microseconds)"));
    }
    check_words(config, &mut problems);
    for kind in ["mount", "mounts"] {
        for mount in config.blocks(kind) {
            check_mount(mount, &mut problems);
        }
    }
    for logging in config.blocks("logging") {
        let (kind, driver) = (logging.text_or_empty("type"), logging.text_or_empty("driver"));
        if !kind.is_empty() && !driver.is_empty() && kind != driver {
            problems.push("logging: type and driver mean the same; set one of them".to_owned());
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
}

fn check_words(config: Config<'_>, problems: &mut Vec<String>) {
    let isolation = config.text_or_empty("isolation");
    if !isolation.is_empty() && isolation != "default" {
        problems.push(format!("isolation {isolation:?} is for Windows containers, which are not supported"));
    }
    let cgroupns = config.text_or_empty("cgroupns");
    if !["", "host", "private"].contains(&cgroupns.as_str()) && !open(&cgroupns) {
        problems.push(format!("cgroupns {cgroupns:?} must be \"host\" or \"private\""));
    }
    for volume in config.list("volumes").iter().filter(|v| !open(v)) {
        let parts = volume.split(':').collect::<Vec<_>>();
        if !(2..=3).contains(&parts.len()) || parts.iter().any(|p| p.is_empty()) {
            problems.push(format!("invalid docker volume {volume:?}: expected source:target[:mode]"));
        }
    }
    for key in ["pids_limit", "memory_hard_limit", "shm_size", "oom_score_adj", "container_exists_attempts"] {
        if config.number(key).is_some_and(|n| n < 0) {
            problems.push(format!("{key} must not be negative"));
        }
    }
    for (name, value) in config.map("ulimit") {
        if !open(&value) && ulimit(&value).is_none() {
            problems.push(format!("Malformed ulimit {name}: {value:?}; expected \"soft:hard\" or one number"));
        }
    }
    for name in config.map("labels").keys().filter(|n| n.starts_with(super::OWN_LABEL_PREFIX)) {
        problems.push(format!("label {name:?}: names with {} are the driver's own", super::OWN_LABEL_PREFIX));
    }
}

fn check_mount(mount: Config<'_>, problems: &mut Vec<String>) {
    let kind = mount.text("type").unwrap_or_else(|| "volume".to_owned());
    if !["bind", "volume", "tmpfs"].contains(&kind.as_str()) && !open(&kind) {
        problems.push(format!("mount: type {kind:?} must be \"bind\", \"volume\" or \"tmpfs\""));
    }
    if mount.text_or_empty("target").is_empty() {
        problems.push("mount: target is missing".to_owned());
    }
    if kind == "bind" && mount.text_or_empty("source").is_empty() {
        problems.push("mount: a bind needs a source".to_owned());
    }
    if kind == "tmpfs" && !mount.text_or_empty("source").is_empty() {
        problems.push("mount: a tmpfs has no source".to_owned());
    }
    for (block, of) in [("bind_options", "bind"), ("volume_options", "volume"), ("tmpfs_options", "tmpfs")] {
        if mount.get(block).is_some() && kind != of && !open(&kind) {
            problems.push(format!("mount: {block} is only for type {of:?}, and this is {kind:?}"));
        }
    }
}

/// Reads `soft:hard` or one number for both.
pub(crate) fn ulimit(text: &str) -> Option<(i64, i64)> {
    let (soft, hard) = text.split_once(':').unwrap_or((text, text));
    Some((soft.trim().parse().ok()?, hard.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn takes_what_job_files_say() {
        check(&json!({
            "image": "redis:${TAG}", "args": ["a"], "ports": ["http"],
            "volumes": ["local/x:/x:ro"], "labels": [{"a": "b"}], "ulimit": {"nofile": "10:20"},
            "mount": [{"type": "bind", "source": "local", "target": "/l", "bind_options": {"propagation": "rshared"}}],
            "mounts": [{"target": "/t", "type": "tmpfs", "tmpfs_options": {"size": 100, "mode": 511}}],
            "logging": {"driver": "syslog", "config": [{"a": "b"}]}, "auth": [{"username": "u"}],
        }))
        .unwrap();
    }

    #[test]
    fn names_every_problem() {
        for (extra, word) in [
            (json!({"imag": "x"}), "imag"),
            (json!({"command": " x"}), "command"),
            (json!({"isolation": "hyperv"}), "isolation"),
            (json!({"cgroupns": "x"}), "cgroupns"),
            (json!({"cpu_cfs_period": 1}), "cpu_cfs_period"),
            (json!({"volumes": ["x"]}), "volume"),
            (json!({"ulimit": {"nofile": "x"}}), "ulimit"),
            (json!({"labels": {"herdsman.node_id": "x"}}), "herdsman.node_id"),
            (json!({"mount": {"type": "x", "target": "/"}}), "type"),
            (json!({"mount": {"type": "bind", "target": "/"}}), "source"),
            (json!({"mount": {"type": "tmpfs", "target": "/", "bind_options": {}}}), "bind_options"),
            (json!({"logging": {"type": "a", "driver": "b"}}), "logging"),
            (json!({"pids_limit": -1}), "pids_limit"),
            (json!({"image": "a b"}), "image"),
        ] {
            let mut config = json!({"image": "x"});
            config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let error = check(&config).expect_err("refused").to_string();
            assert!(error.contains(word), "{extra}: {error}");
        }
        assert!(check(&json!({})).unwrap_err().to_string().contains("\"image\" is required"));
    }
}
