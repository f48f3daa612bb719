//! `raw_exec`.

use std::sync::Arc;
use std::time::Duration;

use herdsman_drivers::{Driver, DriverError, Health, RawExecDriver, RawExecOptions, RecoverError};
use serde_json::json;

use crate::support::{alive, end, eventually, node, shell};

#[tokio::test]
async fn a_task_runs_in_its_directory_with_its_environment() {
    let n = node().await;
    let driver = n.raw_exec();
    let exit = n.whole(&driver, "web", "pwd; echo $COLOUR; id -u; echo oops >&2; exit 3").await;
    assert_eq!((exit.exit_code, exit.signal, exit.oom_killed), (3, 0, false));
    assert_eq!(n.log("web.stdout.0"), format!("{}\ngreen\n0\n", n.dir.path().join("alloc-1/web").display()));
    assert_eq!(n.log("web.stderr.0"), "oops\n");
}

#[tokio::test]
async fn what_is_asked_of_raw_exec_is_checked() {
    let n = node().await;
    let driver = n.raw_exec();
    let error = driver.check_config(&json!({"comand": "x"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "3 errors occurred:\n\t* failed to parse config: \
         \n\t* Missing required argument: The argument \"command\" is required, but no definition was found.\
         \n\t* Invalid label: No argument or block type is named \"comand\". Did you mean \"command\"?\n\n"
    );
    assert!(driver.check_config(&json!({"command": "x", "args": [1, 2.5, true, "s"]})).is_ok());
    assert!(driver.check_config(&json!({"command": "x", "args": "y"})).is_err());
    assert!(driver.check_config(&json!({"command": " x"})).is_err());
    assert!(driver.check_config(&json!({"command": "x", "work_dir": "rel"})).is_err());
    assert!(driver.check_config(&json!({"command": "x", "oom_score_adj": -1})).is_err());
    assert!(driver.check_config(&json!({"command": "${meta.x}", "oom_score_adj": "${meta.y}"})).is_ok());

    let error = driver.start(n.spec("a", json!({"command": "/no/such"}))).await.unwrap_err();
    assert!(!error.recoverable);
    assert_eq!(
        error.message,
        "failed to launch command with executor: rpc error: code = Unknown desc = binary \"/no/such\" could not be found"
    );
    let mut spec = n.spec("a", shell("true"));
    spec.user = "nosuchuser".into();
    assert_eq!(
        driver.start(spec).await.unwrap_err().message,
        "failed driver config validation: failed to identify user \"nosuchuser\": user: unknown user nosuchuser"
    );
    let denied = RawExecOptions { enabled: true, denied_host_uids: "0,5-9".into(), ..RawExecOptions::default() };
    let driver = RawExecDriver::new(Arc::clone(&n.executor), denied).unwrap();
    assert!(driver.start(n.spec("a", shell("true"))).await.unwrap_err().message.contains("uid 0 is disallowed"));
}

#[tokio::test]
async fn cve_2019_15928_a_disabled_driver_starts_nothing() {
    let n = node().await;
    let driver = RawExecDriver::new(Arc::clone(&n.executor), RawExecOptions::default()).unwrap();
    let found = driver.fingerprint().await;
    assert_eq!((found.health, found.description.as_str()), (Health::Undetected, "disabled"));
    assert!(driver.start(n.spec("a", shell("touch ran"))).await.is_err());
    assert!(!n.dir.path().join("alloc-1/a/ran").exists());
}

#[tokio::test]
async fn programs_are_found_where_the_peer_looks() {
    use std::os::unix::fs::PermissionsExt;
    let n = node().await;
    let driver = n.raw_exec();
    let spec = n.spec("find", json!({"command": "tool", "args": ["x"]}));
    std::fs::write(spec.dirs.local.join("tool"), "#!/bin/sh\necho local $1\n").unwrap();
    // Downloaded without the permission.
    std::fs::set_permissions(spec.dirs.local.join("tool"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let (handle, _) = driver.start(spec).await.unwrap();
    assert_eq!(end(&driver, &handle).await.exit_code, 0);
    assert_eq!(n.log("find.stdout.0"), "local x\n");
    // Rendered without it, and named by its whole path.
    let spec = n.spec("whole", json!({}));
    let path = spec.dirs.local.join("script.sh");
    std::fs::write(&path, "#!/bin/sh\necho rendered\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let spec = herdsman_drivers::TaskSpec { config: json!({"command": path.to_str().unwrap()}), ..spec };
    let (handle, _) = driver.start(spec).await.unwrap();
    assert_eq!(end(&driver, &handle).await.exit_code, 0);
    assert_eq!(n.log("whole.stdout.0"), "rendered\n");
    let (handle, _) = driver.start(n.spec("path", json!({"command": "echo", "args": ["hi"]}))).await.unwrap();
    end(&driver, &handle).await;
    assert_eq!(n.log("path.stdout.0"), "hi\n");
}

#[tokio::test]
async fn what_a_task_links_to_is_not_made_executable() {
    use std::os::unix::fs::PermissionsExt;
    let n = node().await;
    let driver = n.raw_exec();
    let outside = n.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("tool"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(outside.join("tool"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let spec = n.spec("linked", json!({"command": "out/tool"}));
    std::os::unix::fs::symlink(&outside, spec.dirs.local.join("out")).unwrap();
    assert!(driver.start(spec).await.is_err());
    assert_eq!(std::fs::metadata(outside.join("tool")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn another_user_and_fewer_variables() {
    let n = node().await;
    let driver = n.raw_exec();
    let mut spec = n.spec(
        "user",
        json!({"command": "/bin/sh", "args": ["-c", "id -un; id -Gn; env | grep -c SECRET"],
               "denied_envvars": ["SECRET_*"], "oom_score_adj": 500}),
    );
    spec.user = "nobody".into();
    spec.env.insert("SECRET_KEY".into(), "x".into());
    let (handle, _) = driver.start(spec).await.unwrap();
    end(&driver, &handle).await;
    assert_eq!(n.log("user.stdout.0"), "nobody\nnogroup\n0\n");
}

#[tokio::test]
async fn stop_signals_waits_and_kills_the_tree() {
    let n = node().await;
    let driver = n.raw_exec();
    let script = "setsid sleep 1000 & echo $! > child; trap 'echo bye; exit 4' INT; while true; do sleep 0.01; done";
    let (handle, _) = driver.start(n.spec("polite", shell(script))).await.unwrap();
    let file = n.dir.path().join("alloc-1/polite/child");
    eventually("child", || std::fs::read_to_string(&file).is_ok_and(|t| t.ends_with('\n'))).await;
    driver.stop(&handle, Duration::from_secs(30), "").await.unwrap();
    let exit = driver.wait(&handle).await;
    assert_eq!((exit.exit_code, exit.signal), (4, 0));
    assert_eq!(n.log("polite.stdout.0"), "bye\n");
    let child: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    assert!(!alive(child), "nomad_1110: a child is left");

    let script = "trap '' TERM; echo up; while true; do sleep 0.01; done";
    let (handle, _) = driver.start(n.spec("deaf", shell(script))).await.unwrap();
    eventually("up", || n.log("deaf.stdout.0") == "up\n").await;
    driver.stop(&handle, Duration::from_millis(50), "SIGTERM").await.unwrap();
    let exit = driver.wait(&handle).await;
    assert_eq!((exit.exit_code, exit.signal), (137, 9));
    assert_eq!(driver.signal(&handle, "SIGHUP").await, Err(DriverError::NotRunning));
    driver.stop(&handle, Duration::from_millis(50), "SIGTERM").await.unwrap();
}

#[tokio::test]
async fn unknown_signals_interrupt_as_with_the_peer() {
    let n = node().await;
    let driver = n.raw_exec();
    let script = "trap 'echo INT' INT; trap 'echo USR1' USR1; trap 'echo end; exit 0' TERM; \
        echo up; while true; do sleep 0.01; done";
    let (handle, _) = driver.start(n.spec("sig", shell(script))).await.unwrap();
    eventually("up", || n.log("sig.stdout.0") == "up\n").await;
    let mut expected = "up\n".to_owned();
    for (name, seen) in [("SIGUSR1", "USR1\n"), ("SIGNOPE", "INT\n"), ("", "INT\n"), ("SIGNULL", "")] {
        driver.signal(&handle, name).await.unwrap();
        expected.push_str(seen);
        eventually(name, || n.log("sig.stdout.0") == expected).await;
    }
    driver.signal(&handle, "SIGTERM").await.unwrap();
    assert_eq!(end(&driver, &handle).await.exit_code, 0);
    assert!(herdsman_drivers::signals::number("SIGNOPE").unwrap_err().contains("SIGNOPE"));
}

#[tokio::test]
async fn memory_is_limited_and_the_end_says_so() {
    let n = node().await;
    let driver = n.raw_exec();
    let mut spec = n.spec("hungry", shell("head -c 200000000 /dev/zero | tail | sleep 1000"));
    spec.resources.memory_mb = 20;
    let (handle, _) = driver.start(spec).await.unwrap();
    let scope = format!("{}.scope", handle.key.file_name());
    // Only one of the three is killed; the task goes on without it.
    eventually("kill", || oom_kills(&scope) > 0 || !alive(handle.pid)).await;
    driver.stop(&handle, Duration::ZERO, "").await.unwrap();
    let exit = driver.wait(&handle).await;
    assert!(exit.oom_killed);
}

fn oom_kills(scope: &str) -> u32 {
    let mut total = 0;
    for base in ["/sys/fs/cgroup/memory/herdsman-test.slice", "/sys/fs/cgroup/herdsman-test.slice"] {
        for file in ["memory.oom_control", "memory.events"] {
            let text = std::fs::read_to_string(format!("{base}/{scope}/{file}")).unwrap_or_default();
            let line = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
            total += line.and_then(|l| l.trim().parse::<u32>().ok()).unwrap_or(0);
        }
    }
    total
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let n = node().await;
    let driver = n.raw_exec();
    let (handle, _) = driver.start(n.spec("gone", shell("sleep 1000"))).await.unwrap();
    let again = driver.start(n.spec("gone", shell("sleep 1000"))).await.unwrap().0;
    assert_eq!(again.pid, handle.pid, "the same key is the same start");
    assert!(driver.destroy(&handle, false).await.is_err());
    assert!(alive(handle.pid));
    driver.destroy(&handle, true).await.unwrap();
    assert!(!alive(handle.pid));
    assert_eq!(driver.recover(&handle).await, Err(RecoverError::NeverStarted));
    for hierarchy in ["memory", "cpu", "cpuset", "unified", "."] {
        let dir = format!("/sys/fs/cgroup/{hierarchy}/herdsman-test.slice/{}.scope", handle.key.file_name());
        assert!(!std::path::Path::new(&dir).exists(), "{dir} is left");
    }
}

#[tokio::test]
async fn nomad_13670_figures_are_positive() {
    let n = node().await;
    let driver = n.raw_exec();
    let (handle, _) = driver.start(n.spec("busy", shell("while true; do :; done"))).await.unwrap();
    driver.stats(&handle).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stats = driver.stats(&handle).await.unwrap();
    assert!(stats.usage.memory.rss > 0);
    assert!(stats.usage.cpu.percent > 0.0);
    assert!(stats.pids.contains_key(&handle.pid));
    driver.destroy(&handle, true).await.unwrap();
    assert!(driver.stats(&handle).await.is_err());
}

#[tokio::test]
async fn many_short_tasks_all_end_well() {
    let n = node().await;
    let driver = n.raw_exec();
    for i in 0..100 {
        let name = format!("t{i}");
        let exit = n.whole(&driver, &name, "exit 0").await;
        assert!(exit.success(), "{name}: {exit:?}");
    }
    assert_eq!(n.executor.host().list().len(), 100);
}
