use super::*;
use crate::docker::keys;
use crate::schema::{Key, Kind};

fn made(config: Value, change: impl Fn(&mut TaskSpec, &mut DockerOptions)) -> Result<Plan, StartError> {
    let mut spec = TaskSpec { config, ..TaskSpec::default() };
    spec.resources = TaskResources { cpu_shares: 500, memory_mb: 100, node_cpu_mhz: 4000, ..TaskResources::default() };
    spec.dirs.alloc_dir = "/nonexistent/a".into();
    spec.dirs.task_dir = "/nonexistent/a/t".into();
    let mut options = DockerOptions::new("n", "/d".into(), "/s".into());
    change(&mut spec, &mut options);
    let siblings = BTreeMap::from([("main-a1".to_owned(), "c0ffee".to_owned())]);
    let facts =
        Facts { options: &options, api: (1, 41), processors: 4, pin_dir: "/nonexistent/p".into(), siblings: &siblings };
    plan(&spec, &facts)
}

fn at(plan: &Plan, pointer: &str) -> Value {
    plan.body.pointer(pointer).cloned().unwrap_or(Value::Null)
}

fn refused(config: Value, word: &str) {
    let error = made(config.clone(), |_, _| {}).expect_err("refused");
    assert!(!error.recoverable && error.message.contains(word), "{config}: {error}");
}

#[test]
fn memory_limits() {
    for (memory, max, hard, limit, reservation) in [
        (100, 0, 0, 100, 0),
        (100, 300, 0, 300, 100),
        (100, -1, 0, 0, 100),
        (100, 0, 200, 200, 100),
        (100, 300, 400, 400, 100),
    ] {
        let plan = made(json!({ "memory_hard_limit": hard }), |s, _| {
            (s.resources.memory_mb, s.resources.memory_max_mb) = (memory, max);
        })
        .unwrap();
        let got =
            ["/HostConfig/Memory", "/HostConfig/MemoryReservation", "/HostConfig/MemorySwap"].map(|p| at(&plan, p));
        assert_eq!(got, [json!(limit * MIB), json!(reservation * MIB), json!(limit * MIB)], "{memory} {max} {hard}");
    }
}

#[test]
fn nomad_26081_a_tiny_share_of_a_large_host_is_a_legal_weight() {
    for (cpu, node, shares) in
        [(1, 1_000_000, 2), (500, 4000, 500), (1_000_000, 1_000_000, 262_144), (300_000, 4000, 262_144)]
    {
        let plan = made(json!({}), |s, _| (s.resources.cpu_shares, s.resources.node_cpu_mhz) = (cpu, node)).unwrap();
        assert_eq!(at(&plan, "/HostConfig/CpuShares"), json!(shares));
    }
    let plan = made(json!({"cpu_hard_limit": true, "cpu_cfs_period": 50_000}), |_, _| {}).unwrap();
    assert_eq!(at(&plan, "/HostConfig/CpuQuota"), json!(500 * 50_000 * 4 / 4000));
}

#[test]
fn nomad_28190_namespaces_of_the_host_need_permission() {
    for key in ["pid_mode", "ipc_mode", "userns_mode", "uts_mode"] {
        refused(json!({ key: "host" }), key);
        refused(json!({ key: "container:other" }), key);
        made(json!({ key: "host" }), |_, o| o.allow_privileged = true).unwrap();
        let kind = key.strip_suffix("_mode").unwrap().to_owned();
        made(json!({ key: "host" }), |_, o| {
            o.allowed_modes.insert(kind.clone(), ["host".to_owned()].into());
        })
        .unwrap();
    }
    let plan = made(json!({"ipc_mode": "container:main-a1", "network_mode": "container:main-a1"}), |_, _| {}).unwrap();
    assert_eq!(at(&plan, "/HostConfig/IpcMode"), json!("container:c0ffee"));
    assert_eq!(at(&plan, "/HostConfig/NetworkMode"), json!("container:c0ffee"));
}

#[test]
fn what_the_operator_did_not_allow_is_refused() {
    refused(json!({"privileged": true}), "privileged");
    refused(json!({"cap_add": ["sys_admin"]}), "sys_admin");
    refused(json!({"runtime": "kata"}), "kata");
    refused(json!({"volumes": ["/etc:/x"]}), "volumes are not enabled");
    refused(json!({"volumes": ["../../../etc:/x"]}), "volumes are not enabled");
    refused(json!({"volume_driver": "nfs"}), "volume_driver");
    refused(json!({"mount": {"type": "bind", "source": "/etc", "target": "/x"}}), "volumes are not enabled");
    refused(
        json!({"mount": {"target": "/x", "volume_options": {"driver_config": {"name": "local"}}}}),
        "driver_config",
    );
    refused(json!({"ports": ["http"]}), "http");
    refused(json!({"port_map": {"http": 80}}), "port_map");
    refused(json!({"hostname": "h", "network_mode": "container:x"}), "hostname");
    refused(json!({"security_opt": ["seccomp=/etc/passwd"]}), "JSON");
    let limit = made(json!({"pids_limit": 11}), |_, o| o.pids_limit = 10).unwrap_err();
    assert!(limit.message.contains("pids_limit"));
}

#[test]
fn capabilities_are_named_one_by_one() {
    let allowed = DockerOptions::new("n", "/d".into(), "/s".into()).allow_caps;
    let list = |l: &[&str]| l.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let default = capabilities(&[], &[], &allowed).unwrap();
    assert!(default.len() == 13 && !default.contains(&"NET_RAW".to_owned()));
    assert_eq!(capabilities(&list(&["CAP_CHOWN"]), &list(&["all"]), &allowed).unwrap(), ["CHOWN"]);
    assert!(!capabilities(&[], &list(&["Chown"]), &allowed).unwrap().contains(&"CHOWN".to_owned()));
    assert_eq!(capabilities(&list(&["all"]), &[], &["all".to_owned()].into()).unwrap(), ["ALL"]);
    assert_eq!(capabilities(&list(&["all"]), &list(&["all"]), &["kill".to_owned()].into()).unwrap(), ["KILL"]);
}

#[test]
fn nomad_9951_two_labels_reach_one_port() {
    let port =
        |label: &str, host_port| Port { label: label.to_owned(), host_ip: "10.0.0.1".to_owned(), host_port, to: 80 };
    let plan = made(json!({"ports": ["a", "b"]}), |s, _| s.ports = vec![port("a", 1000), port("b", 1001)]).unwrap();
    let list = at(&plan, "/HostConfig/PortBindings/80~1tcp");
    assert_eq!(list, json!([{"HostIp": "10.0.0.1", "HostPort": "1000"}, {"HostIp": "10.0.0.1", "HostPort": "1001"}]));
    assert_eq!(at(&plan, "/ExposedPorts/80~1udp"), json!({}));
    let host = made(json!({"ports": ["a"], "network_mode": "host"}), |s, _| s.ports = vec![port("a", 1000)]).unwrap();
    assert_eq!(at(&host, "/HostConfig/PortBindings"), json!({}));
}

#[test]
fn every_key_arrives() {
    let config = json!({
        "command": "c", "args": ["x"], "entrypoint": ["e"], "work_dir": "/w", "tty": true, "interactive": true,
        "hostname": "h", "init": true, "readonly_rootfs": true, "shm_size": 5, "ulimit": {"nofile": "1:2"},
        "sysctl": {"a.b": "1"}, "storage_opt": {"size": "1G"}, "security_opt": ["no-new-privileges"],
        "group_add": ["g"], "dns_servers": ["1.1.1.1"], "dns_options": ["o"], "dns_search_domains": ["d"],
        "extra_hosts": ["a:1.2.3.4"], "network_mode": "mine", "network_aliases": ["al"], "ipv4_address": "9.9.9.9",
        "mac_address": "m", "cgroupns": "private", "oom_score_adj": 7, "pids_limit": 9, "healthchecks": {"disable": true},
        "devices": [{"host_path": "/dev/null"}], "logging": {"type": "syslog", "config": {"tag": "t"}},
        "mount": [{"type": "tmpfs", "target": "/t", "tmpfs_options": {"size": 3, "mode": 448}}],
        "volumes": ["/etc:/e:ro"], "volume_driver": "vd", "runtime": "runc", "privileged": true,
    });
    let plan = made(config, |_, o| (o.volumes_enabled, o.allow_privileged) = (true, true)).unwrap();
    for (pointer, value) in [
        ("/Cmd", json!(["c", "x"])),
        ("/Entrypoint", json!(["e"])),
        ("/WorkingDir", json!("/w")),
        ("/Tty", json!(true)),
        ("/OpenStdin", json!(true)),
        ("/Hostname", json!("h")),
        ("/HostConfig/Init", json!(true)),
        ("/MacAddress", json!("m")),
        ("/HostConfig/ReadonlyRootfs", json!(true)),
        ("/HostConfig/ShmSize", json!(5)),
        ("/HostConfig/Ulimits", json!([{"Name": "nofile", "Soft": 1, "Hard": 2}])),
        ("/HostConfig/Sysctls", json!({"a.b": "1"})),
        ("/HostConfig/StorageOpt", json!({"size": "1G"})),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges"])),
        ("/HostConfig/GroupAdd", json!(["g"])),
        ("/HostConfig/Dns", json!(["1.1.1.1"])),
        ("/HostConfig/DnsOptions", json!(["o"])),
        ("/HostConfig/DnsSearch", json!(["d"])),
        ("/HostConfig/ExtraHosts", json!(["a:1.2.3.4"])),
        ("/HostConfig/NetworkMode", json!("mine")),
        ("/HostConfig/CgroupnsMode", json!("private")),
        ("/HostConfig/OomScoreAdj", json!(7)),
        ("/HostConfig/PidsLimit", json!(9)),
        ("/Healthcheck/Test", json!(["NONE"])),
        ("/HostConfig/Devices/0/PathInContainer", json!("/dev/null")),
        ("/HostConfig/LogConfig/Type", json!("syslog")),
        ("/HostConfig/LogConfig/Config", json!({"tag": "t"})),
        ("/HostConfig/Binds", json!(["/etc:/e:ro"])),
        ("/HostConfig/VolumeDriver", json!("vd")),
        ("/HostConfig/Mounts/0/TmpfsOptions/SizeBytes", json!(3)),
        ("/HostConfig/Runtime", json!("runc")),
        ("/HostConfig/Privileged", json!(true)),
        ("/NetworkingConfig/EndpointsConfig/mine/Aliases", json!(["al"])),
        ("/NetworkingConfig/EndpointsConfig/mine/IPAMConfig/IPv4Address", json!("9.9.9.9")),
    ] {
        assert_eq!(at(&plan, pointer), value, "{pointer}");
    }
    assert!(!plan.log_readable && plan.log_driver == "syslog");
}

/// Keys that the request for a container does not show, and where they are read.
const ELSEWHERE: &[&str] = &[
    // The image: pulled, loaded or found.
    "image",
    "auth",
    "auth_soft_fail",
    "force_pull",
    "image_pull_timeout",
    "load",
    // Making and watching the container.
    "container_exists_attempts",
    "advertise_ipv6_address",
    // Together with the node's own labels.
    "labels",
];

/// Every key changes the request, is told of, or is refused; none is accepted without effect.
#[test]
fn no_key_is_accepted_without_effect() {
    let sample = |key: &Key| match (key.name, key.kind) {
        ("cap_add", _) => json!(["net_raw"]),
        ("cap_drop", _) => json!(["chown"]),
        ("cgroupns", _) => json!("private"),
        ("cpu_cfs_period", _) => json!(50_000),
        ("devices", _) => json!([{"host_path": "/dev/null"}]),
        ("healthchecks", _) => json!([{"disable": true}]),
        ("logging", _) => json!([{"type": "none"}]),
        ("mount" | "mounts", _) => json!([{"type": "tmpfs", "target": "/x"}]),
        ("network_mode", _) => json!("none"),
        ("ipc_mode" | "pid_mode" | "userns_mode" | "uts_mode", _) => json!("host"),
        ("ports", _) => json!(["web"]),
        ("port_map", _) => json!({"web": 80}),
        ("ulimit", _) => json!({"nofile": "10"}),
        ("volumes", _) => json!(["a:/b"]),
        ("volume_driver", _) => json!("nfs"),
        ("ipv6_address", _) => json!("2001:db8::2"),
        ("ipv4_address", _) => json!("192.0.2.2"),
        (_, Kind::Bool) => json!(true),
        (_, Kind::Num) => json!(3),
        (_, Kind::StrList) => json!(["x"]),
        (_, Kind::StrMap) => json!({"a": "b"}),
        _ => json!("x"),
    };
    let told = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = |spec: &mut TaskSpec| {
        let told = std::sync::Arc::clone(&told);
        spec.events = crate::types::EventSink(std::sync::Arc::new(move |_| {
            told.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }));
        spec.ports = vec![Port { label: "web".into(), host_port: 8080, to: 0, host_ip: "127.0.0.1".into() }];
    };
    // Some keys mean something only beside another.
    let beside = |key: &str| match key {
        "cpu_cfs_period" => json!({"cpu_hard_limit": true}),
        "volume_driver" => json!({"volumes": ["a:/b"]}),
        "network_aliases" | "ipv4_address" | "ipv6_address" => json!({"network_mode": "own"}),
        _ => json!({}),
    };
    let run = |config: Value| {
        made(config, |spec, options| {
            count(spec);
            options.volumes_enabled = true;
        })
    };
    let mut found = Vec::new();
    for key in keys::KEYS.iter().filter(|key| !ELSEWHERE.contains(&key.name)) {
        let without = run(beside(key.name)).unwrap_or_else(|e| panic!("{}: {e}", key.name)).body;
        let mut config = beside(key.name);
        config[key.name] = sample(key);
        let before = told.load(std::sync::atomic::Ordering::Relaxed);
        let silent = match run(config) {
            Ok(plan) => plan.body == without && told.load(std::sync::atomic::Ordering::Relaxed) == before,
            Err(error) => !error.message.contains(key.name.trim_end_matches("_mode")),
        };
        if silent {
            found.push(key.name);
        }
    }
    assert_eq!(found, [""; 0], "accepted without effect");
}
