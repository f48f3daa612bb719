//! Ends of tasks: codes, signals, leftovers, deadlines.

use herdsman_shim::messages::Deadline;
use herdsman_shim::{Attached, attach, signal};

use crate::support::{alive, bench, end, eventually};

#[tokio::test]
async fn nomad_10494_exit_code_is_kept_every_time() {
    let b = bench().await;
    for round in 0..30 {
        let name = format!("code{round}");
        let exit = b.whole(&name, "exit 42").await;
        assert_eq!((exit.code, exit.signal, exit.oom), (42, 0, false));
        let Attached::Exited(record) = attach(&b.run_file(&name)).await.unwrap() else { panic!("no record") };
        assert_eq!(record, exit);
    }
    let exit = b.whole("sig", "kill -TERM $$").await;
    assert_eq!((exit.code, exit.signal), (0, 15));
    assert!(exit.finished_ns >= exit.started_ns);
}

#[tokio::test]
async fn nomad_1110_children_end_with_the_task() {
    let b = bench().await;
    let script = "sleep 1000 & echo $! > same; setsid sh -c 'echo $$ > other; exec sleep 1000' & \
        while [ ! -s other ]; do sleep 0.01; done; exit 5";
    let exit = b.whole("tree", script).await;
    assert_eq!(exit.code, 5);
    assert!(exit.leftovers >= 1);
    for file in ["same", "other"] {
        let pid: u32 = std::fs::read_to_string(b.dir.path().join(file)).unwrap().trim().parse().unwrap();
        assert!(!alive(pid), "{file} is still there");
    }
}

#[tokio::test]
async fn signals_reach_the_first_process() {
    let b = bench().await;
    let script = "trap 'echo got; exit 9' USR1; echo ready; while true; do sleep 0.01; done";
    let (_, mut wait) = b.running(&b.request("trap", script)).await;
    eventually("ready", || b.log("trap.stdout.0") == "ready\n").await;
    signal(&b.run_file("trap"), 10, false).await.unwrap();
    assert_eq!(end(&mut wait).await.code, 9);
    assert_eq!(b.log("trap.stdout.0"), "ready\ngot\n");
    assert!(signal(&b.run_file("trap"), 10, false).await.is_err());
}

#[tokio::test]
async fn a_deadline_is_kept_without_the_agent() {
    let b = bench().await;
    let mut request = b.request("late", "trap '' INT; echo up; while true; do sleep 0.01; done");
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() + 200_000_000;
    let at_ns = u64::try_from(soon).unwrap();
    request.deadline = Some(Deadline { at_ns, signal: 2, grace_ns: 100_000_000 });
    let (_, wait) = b.running(&request).await;
    drop(wait);
    let mut found = None;
    while found.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        if let Attached::Exited(exit) = attach(&b.run_file("late")).await.unwrap() {
            found = Some(exit);
        }
    }
    let exit = found.unwrap();
    assert!(exit.deadline);
    assert_eq!(exit.signal, 9);
    assert!(exit.finished_ns >= at_ns + 100_000_000);
}

#[tokio::test]
async fn the_task_finds_a_clean_process() {
    let b = bench().await;
    let mut request = b.request("clean", "");
    request.exe = b"/bin/cat".to_vec();
    request.argv = vec![b"cat".to_vec(), b"/proc/self/status".to_vec(), b"/proc/self/oom_score_adj".to_vec()];
    let (_, mut wait) = b.running(&request).await;
    end(&mut wait).await;
    let text = b.log("clean.stdout.0");
    let none = "0000000000000000";
    for line in ["SigBlk", "SigIgn"] {
        assert!(text.contains(&format!("{line}:\t{none}\n")), "{text}");
    }
    assert_eq!(text.lines().last(), Some("0"), "nomad_10698");
    b.whole("files", "ls /proc/self/fd | wc -l").await;
    assert_eq!(b.log("files.stdout.0").trim(), "4", "only 0, 1, 2 and the listed directory are open");
}
