//! `exec`: isolation. Needs root, as the driver does.

use std::sync::Arc;
use std::time::Duration;

use herdsman_drivers::{Dns, Driver, ExecDriver, ExecOptions, Health, Mount};
use serde_json::json;

use crate::support::{alive, end, eventually, node, shell};

#[tokio::test]
async fn the_host_can_isolate() {
    let n = node().await;
    let found = n.exec().fingerprint().await;
    assert_eq!((found.health, found.description.as_str()), (Health::Healthy, "Healthy"));
    assert_eq!(found.attributes["driver.exec"], "1");
}

#[tokio::test]
async fn a_task_sees_its_own_world() {
    let n = node().await;
    let driver = n.exec();
    let script = "id -un; pwd; echo $$; ls /; cat /proc/1/comm; ls /proc | grep -c '^[0-9]'; hostname >/dev/null; \
        touch /local/mine /alloc/data/shared && echo wrote; touch /usr/x 2>/dev/null || echo usr-ro; \
        touch /alloc/logs/x 2>/dev/null || echo logs-ro; cat /etc/resolv.conf >/dev/null && echo resolv";
    let exit = n.whole(&driver, "iso", script).await;
    let text = n.log("iso.stdout.0");
    assert_eq!(exit.exit_code, 0, "{text} {}", n.log("iso.stderr.0"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], ["nobody", "/", "1"]);
    for dir in ["alloc", "bin", "dev", "etc", "local", "proc", "secrets", "usr"] {
        assert!(lines.contains(&dir), "{dir} is missing");
    }
    assert!(!lines.contains(&"root") && !lines.contains(&"work"), "the host's root shows");
    for line in ["sh", "wrote", "usr-ro", "logs-ro", "resolv"] {
        assert!(lines.contains(&line), "{line}: {text}");
    }
    assert!(n.dir.path().join("alloc-1/iso/local/mine").exists());
    assert!(n.dir.path().join("alloc-1/alloc/data/shared").exists());
}

#[tokio::test]
async fn a_task_has_few_privileges() {
    let n = node().await;
    let driver = n.exec();
    n.whole(&driver, "caps", "cat /proc/self/status; cat /proc/self/oom_score_adj; ls /proc/self/fd | wc -l").await;
    let text = n.log("caps.stdout.0");
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("CapEff:"), "0000000000000000");
    assert_eq!(field("CapAmb:"), "0000000000000000");
    // audit_write chown dac_override fowner fsetid kill mknod net_bind_service
    // setfcap setgid setpcap setuid sys_chroot
    assert_eq!(field("CapBnd:"), "00000000a80405fb");
    assert_eq!(field("NoNewPrivs:"), "1");
    assert!(text.ends_with("\n0\n4\n"), "oom_score_adj 0 (nomad_10698), only standard streams: {text}");
}

#[tokio::test]
async fn root_in_a_task_is_no_root_outside() {
    let n = node().await;
    let driver = n.exec();
    let script = "id -u; mknod /tmp/disk b 1 0 && (cat /tmp/disk >/dev/null 2>&1 || echo no-disk); \
        mknod /dev/x c 1 3 2>/dev/null || echo dev-ro; mount -t tmpfs x /tmp 2>/dev/null || echo no-mount; \
        echo 1 > /proc/sys/kernel/panic 2>/dev/null || echo sys-ro; kill -0 -1 2>/dev/null; \
        mount -o remount,rw /usr 2>/dev/null || echo no-remount; cat /proc/kcore 2>/dev/null | head -c 1 | wc -c";
    let mut spec = n.spec("root", shell(script));
    spec.user = "root".into();
    let (handle, _) = driver.start(spec).await.unwrap();
    end(&driver, &handle).await;
    let text = n.log("root.stdout.0");
    for line in ["0", "no-disk", "dev-ro", "no-mount", "sys-ro", "no-remount"] {
        assert!(text.lines().any(|l| l == line), "{line}: {text} {}", n.log("root.stderr.0"));
    }
}

#[tokio::test]
async fn nomad_6722_a_daemon_ends_with_its_task() {
    let n = node().await;
    let driver = n.exec();
    let marker = format!("sleep 31{}", std::process::id());
    let exit = n.whole(&driver, "daemon", &format!("setsid {marker} & sleep 0.1; exit 0")).await;
    assert_eq!(exit.exit_code, 0);
    let still = std::fs::read_dir("/proc").unwrap().flatten().any(|e| {
        let line = std::fs::read(e.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").starts_with(&marker)
    });
    assert!(!still);
}

#[tokio::test]
async fn rendered_programs_need_no_permission() {
    use std::os::unix::fs::PermissionsExt;
    let n = node().await;
    let driver = n.exec();
    for (task, command) in [("own", "/local/run.sh"), ("near", "run.sh"), ("shared", "/alloc/data/run.sh")] {
        let spec = n.spec(task, serde_json::json!({"command": command}));
        let path = match command.strip_prefix("/alloc/") {
            Some(below) => spec.dirs.shared.join(below),
            None => spec.dirs.local.join("run.sh"),
        };
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "#!/bin/sh\necho ran\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let (handle, _) = driver.start(spec).await.unwrap();
        end(&driver, &handle).await;
        assert_eq!(n.log(&format!("{task}.stdout.0")), "ran\n", "{command}");
    }
}

#[tokio::test]
async fn lack_of_memory_is_told() {
    let n = node().await;
    let driver = n.exec();
    let mut spec = n.spec("oom", shell("exec tail /dev/zero"));
    spec.resources.memory_mb = 20;
    let (handle, _) = driver.start(spec).await.unwrap();
    let exit = end(&driver, &handle).await;
    assert_eq!((exit.exit_code, exit.signal, exit.oom_killed), (137, 9, true));
}

#[tokio::test]
async fn volumes_and_name_servers() {
    let n = node().await;
    let driver = n.exec();
    let (rw, ro) = (n.dir.path().join("rw"), n.dir.path().join("ro"));
    for dir in [&rw, &ro] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("file"), "content\n").unwrap();
    }
    let mut spec = n.spec(
        "vol",
        shell("cat /data/rw/file; touch /data/rw/new && echo new; cat /ro/file; touch /ro/x || echo ro; cat /etc/resolv.conf"),
    );
    spec.user = "root".into();
    let mount = |host: &std::path::Path, task: &str, readonly| Mount {
        host_path: host.to_owned(),
        task_path: task.into(),
        readonly,
        ..Mount::default()
    };
    spec.mounts = vec![mount(&rw, "/data/rw", false), mount(&ro, "/ro", true)];
    spec.dns = Some(Dns { servers: vec!["192.0.2.7".into()], searches: vec!["x.test".into()], options: vec![] });
    let (handle, _) = driver.start(spec).await.unwrap();
    end(&driver, &handle).await;
    assert_eq!(n.log("vol.stdout.0"), "content\nnew\ncontent\nro\nnameserver 192.0.2.7\nsearch x.test\n");
    assert!(rw.join("new").exists() && !ro.join("x").exists());
}

#[tokio::test]
async fn links_left_by_a_task_lead_nowhere() {
    let n = node().await;
    let driver = n.exec();
    let outside = n.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let spec = n.spec("link", shell("ls /data"));
    // What an earlier attempt of the task may have done to its own root.
    std::os::unix::fs::symlink(&outside, spec.dirs.task_dir.join("data")).unwrap();
    let mut spec = spec;
    let host = n.dir.path().join("vol");
    std::fs::create_dir(&host).unwrap();
    std::fs::write(host.join("seen"), "").unwrap();
    spec.mounts = vec![Mount { host_path: host, task_path: "/data/deep".into(), ..Mount::default() }];
    let started = driver.start(spec).await;
    if let Ok((handle, _)) = &started {
        end(&driver, handle).await;
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "something was made outside the root");
}

#[tokio::test]
async fn capabilities_are_gated() {
    let n = node().await;
    let driver = n.exec();
    let config = |add: &str| json!({"command": "/bin/cat", "args": ["/proc/self/status"], "cap_add": [add], "cap_drop": ["all"]});
    let error = driver.start(n.spec("no", config("sys_admin"))).await.unwrap_err();
    assert!(error.message.ends_with("driver does not allow the following capabilities: sys_admin"), "{error}");
    let (handle, _) = driver.start(n.spec("yes", config("net_bind_service"))).await.unwrap();
    end(&driver, &handle).await;
    let text = n.log("yes.stdout.0");
    assert!(text.contains("CapEff:\t0000000000000400") && text.contains("CapBnd:\t0000000000000400"), "{text}");
    assert!(driver.check_config(&json!({"command": "x", "cap_add": ["fly"]})).is_err());
    let options = ExecOptions { allow_caps: Some(vec!["bogus".into()]), ..ExecOptions::default() };
    assert!(ExecDriver::new(Arc::clone(&n.executor), options).is_err());
}

#[tokio::test]
async fn host_modes_and_other_agents_tasks() {
    let n = node().await;
    let driver = n.exec();
    let config = json!({"command": "/bin/sh", "args": ["-c", "echo $$; exec sleep 1000"], "pid_mode": "host"});
    let (handle, _) = driver.start(n.spec("host", config)).await.unwrap();
    eventually("runs", || n.log("host.stdout.0") == format!("{}\n", handle.pid)).await;
    driver.stop(&handle, Duration::from_secs(30), "SIGTERM").await.unwrap();
    assert!(!alive(handle.pid));
}

#[tokio::test]
async fn a_missing_program_is_told() {
    let n = node().await;
    let driver = n.exec();
    let error = driver.start(n.spec("none", json!({"command": "/no/such"}))).await.unwrap_err();
    assert!(!error.recoverable);
    assert!(error.message.contains("/no/such: no such file or directory"), "{error}");
    // No mount of it is left on the host.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(n.dir.path().to_str().unwrap()));
}
