//! Tasks outlive the agent. The stand-in for an agent is this test program
//! run again, which starts a task, says so, and waits to be killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use herdsman_drivers::{Driver, Handle, RecoverError};

use crate::support::{alive, end, eventually, executor, node, raw_exec_of, shell, spec_in};

/// Tells the stand-in its directory.
const DIR: &str = "HERDSMAN_TEST_AGENT_DIR";
const CHATTY: &str = "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.005; done";

/// Not a test of its own: does something only as the stand-in.
#[tokio::test]
async fn stand_in_agent() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let dir = std::path::PathBuf::from(dir);
    let driver = raw_exec_of(&executor(&dir).await);
    let (handle, _) = driver.start(spec_in(&dir, "kept", shell(CHATTY))).await.unwrap();
    println!("HANDLE {}", serde_json::to_string(&handle).unwrap());
    tokio::time::sleep(Duration::from_secs(3600)).await;
}

/// Runs the stand-in until its task runs; then kills it.
fn agent_life(dir: &std::path::Path) -> Handle {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["agent::stand_in_agent", "--exact", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let handle = loop {
        let line = lines.next().expect("the stand-in says what it started").unwrap();
        // The harness may have begun the line.
        if let Some((_, json)) = line.split_once("HANDLE ") {
            break serde_json::from_str(json).unwrap();
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    handle
}

#[tokio::test]
async fn nomad_27825_a_killed_agent_changes_no_task() {
    let n = node().await;
    let dir = n.dir.path().to_owned();
    let mut first: Option<Handle> = None;
    for _ in 0..5 {
        let life = dir.clone();
        let handle = tokio::task::spawn_blocking(move || agent_life(&life)).await.unwrap();
        let first = first.get_or_insert_with(|| handle.clone());
        assert_eq!((handle.pid, handle.started_ns), (first.pid, first.started_ns));
        assert!(alive(handle.pid));
        // It goes on logging without anybody listening.
        let before = n.log("kept.stdout.0").len();
        eventually("more output", || n.log("kept.stdout.0").len() > before).await;
    }
    let handle = first.unwrap();
    let driver = n.raw_exec();
    driver.recover(&handle).await.unwrap();
    driver.stop(&handle, Duration::from_secs(30), "SIGTERM").await.unwrap();
    let exit = end(&driver, &handle).await;
    assert_eq!((exit.exit_code, exit.signal), (143, 15));
    let text = n.log("kept.stdout.0");
    assert!(text.lines().enumerate().all(|(i, l)| l == format!("line {}", i + 1)), "a line is lost or doubled");
}

#[tokio::test]
async fn nomad_5883_an_end_nobody_saw_is_found_later() {
    let n = node().await;
    let driver = n.raw_exec();
    let spec = n.spec("done", shell("exit 6"));
    let stored = driver.handle(&spec).unwrap();
    driver.start(spec).await.unwrap();
    // A later agent knows only the key it stored before the start.
    let later = raw_exec_of(&executor(n.dir.path()).await);
    later.recover(&stored).await.unwrap();
    assert_eq!(end(&later, &stored).await.exit_code, 6);
    let (again, _) = later.start(n.spec("done", shell("exit 6"))).await.unwrap();
    assert_eq!(end(&later, &again).await.exit_code, 6);
    later.destroy(&stored, false).await.unwrap();
    assert_eq!(later.recover(&stored).await, Err(RecoverError::NeverStarted));
}

#[tokio::test]
async fn nomad_6980_a_killed_shim_is_noticed_and_its_task_ended() {
    let n = node().await;
    let driver = n.raw_exec();
    let (handle, _) =
        driver.start(n.spec("lost", shell("setsid sleep 1000 & echo $! > left; sleep 1000"))).await.unwrap();
    let left = n.dir.path().join("alloc-1/lost/left");
    eventually("child", || std::fs::read_to_string(&left).is_ok_and(|t| t.ends_with('\n'))).await;
    let left: u32 = std::fs::read_to_string(left).unwrap().trim().parse().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", handle.pid)).unwrap();
    let shim: i32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
    let shim = rustix::process::Pid::from_raw(shim).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    let exit = end(&driver, &handle).await;
    assert!(exit.err.is_some() && !exit.success());
    assert!(!alive(handle.pid) && !alive(left), "nomad_24219: something is left");
    driver.destroy(&handle, false).await.unwrap();
}

#[tokio::test]
async fn nomad_10849_a_task_killed_meanwhile_is_not_taken_for_running() {
    let n = node().await;
    let driver = n.raw_exec();
    let (handle, _) = driver.start(n.spec("dead", shell("sleep 1000"))).await.unwrap();
    let later = raw_exec_of(&executor(n.dir.path()).await);
    let pid = rustix::process::Pid::from_raw(i32::try_from(handle.pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("dead", || !alive(handle.pid)).await;
    later.recover(&handle).await.unwrap();
    assert_eq!(end(&later, &handle).await.signal, 9);
}
