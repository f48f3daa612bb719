//! Output files.

use std::os::unix::fs::symlink;

use herdsman_shim::stats;

use crate::support::{bench, end, eventually};

fn names(dir: &std::path::Path) -> Vec<String> {
    let mut out: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    out.sort();
    out
}

#[tokio::test]
async fn nomad_1048_lines_are_whole_at_rotation() {
    let b = bench().await;
    let mut request = b.request("json", "i=0; while [ $i -lt 400 ]; do printf '%0999d\\n' $i; i=$((i+1)); done");
    let log = request.log.as_mut().unwrap();
    log.max_size = 50_000;
    log.max_files = 100;
    let (_, mut wait) = b.running(&request).await;
    end(&mut wait).await;
    let mut all = String::new();
    for n in 0..100 {
        let path = b.dir.path().join(format!("logs/json.stdout.{n}"));
        let Ok(text) = std::fs::read_to_string(path) else { break };
        assert!(text.ends_with('\n'), "file {n} ends in the middle of a line");
        assert!(text.len() <= 50_000 + 1000);
        all.push_str(&text);
    }
    assert_eq!(all.lines().count(), 400);
    assert!(
        all.lines().enumerate().all(|(i, l)| l.len() == 999 && l.trim_start_matches('0').parse().unwrap_or(0) == i)
    );
}

#[tokio::test]
async fn nomad_10912_restarts_keep_the_number_of_files() {
    let b = bench().await;
    for attempt in 0..10 {
        let mut request = b.request("again", &format!("echo attempt {attempt}"));
        request.run_file = [&request.run_file[..], attempt.to_string().as_bytes()].concat();
        let log = request.log.as_mut().unwrap();
        log.max_size = 25;
        let (_, mut wait) = b.running(&request).await;
        end(&mut wait).await;
    }
    let files = names(&b.dir.path().join("logs"));
    let out: Vec<&String> = files.iter().filter(|n| n.contains("stdout")).collect();
    assert_eq!(out, ["again.stdout.2", "again.stdout.3", "again.stdout.4"]);
    assert_eq!(b.log("again.stdout.4"), "attempt 8\nattempt 9\n");
}

#[tokio::test]
async fn a_line_longer_than_a_file_is_cut() {
    let b = bench().await;
    let mut request = b.request("long", "head -c 200000 /dev/zero | tr '\\0' x");
    let log = request.log.as_mut().unwrap();
    log.max_size = 60_000;
    log.max_files = 10;
    let (_, mut wait) = b.running(&request).await;
    end(&mut wait).await;
    let total: usize = (0..10)
        .filter_map(|n| std::fs::read(b.dir.path().join(format!("logs/long.stdout.{n}"))).ok())
        .map(|t| t.len())
        .sum();
    assert_eq!(total, 200_000);
}

#[tokio::test]
async fn nomad_27918_links_in_the_log_directory_are_not_followed() {
    let b = bench().await;
    let victim = b.dir.path().join("victim");
    std::fs::write(&victim, "precious\n").unwrap();
    symlink(&victim, b.dir.path().join("logs/evil.stdout.0")).unwrap();
    std::fs::hard_link(&victim, b.dir.path().join("logs/evil.stderr.0")).unwrap();
    b.whole("evil", "echo out; echo err >&2").await;
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious\n");
    assert_eq!(b.log("evil.stdout.1"), "out\n");
    assert_eq!(b.log("evil.stderr.1"), "err\n");

    let mut request = b.request("dir", "true");
    symlink(b.dir.path(), b.dir.path().join("linked")).unwrap();
    request.log.as_mut().unwrap().dir = crate::support::bytes(&b.dir.path().join("linked"));
    assert!(b.host.start(&request).await.is_err());
}

#[tokio::test]
async fn a_full_disk_neither_stops_the_task_nor_hides_the_loss() {
    let b = bench().await;
    let small = b.dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&small)
        .status()
        .is_ok_and(|s| s.success());
    assert!(mounted, "this test needs the right to mount");
    let mut request = b.request("full", "head -c 1000000 /dev/zero; touch done; sleep 1000");
    request.log.as_mut().unwrap().dir = crate::support::bytes(&small);
    let (_, mut wait) = b.running(&request).await;
    eventually("the task goes on", || b.dir.path().join("done").exists()).await;
    let figures = stats(&b.run_file("full")).await.unwrap();
    herdsman_shim::kill(&b.run_file("full")).await.unwrap();
    let exit = end(&mut wait).await;
    std::process::Command::new("umount").arg("-l").arg(&small).status().unwrap();
    assert!(figures.lost_output > 0);
    assert!(exit.lost_output >= 900_000);
    assert_eq!(String::from_utf8(exit.lost_reason).unwrap().split(" (").next(), Some("No space left on device"));
}
