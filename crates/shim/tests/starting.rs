//! Starting, finding again, failing to start.

use std::io::Read;

use herdsman_shim::messages::PidRecord;
use herdsman_shim::{Attached, ShimError, StartOutcome, attach, exec, remove_run};

use crate::support::{alive, bench, end, eventually, kill, open};

#[tokio::test]
async fn second_start_is_the_first_returned() {
    let b = bench().await;
    let request = b.request("one", "echo started; exec sleep 1000");
    let (first, mut wait) = b.running(&request).await;
    let (second, mut wait2) = b.running(&request).await;
    assert_eq!((first.pid, first.start_ticks), (second.pid, second.start_ticks));
    assert!(second.existing && !first.existing);
    herdsman_shim::kill(&b.run_file("one")).await.unwrap();
    assert_eq!(end(&mut wait).await.signal, 9);
    assert_eq!(end(&mut wait2).await.signal, 9);
    match b.host.start(&request).await.unwrap() {
        StartOutcome::Exited(exit) => assert_eq!(exit.pid, first.pid),
        other => panic!("{other:?}"),
    }
    assert_eq!(b.log("one.stdout.0"), "started\n");
    b.host.forget(&b.run_file("one")).await.unwrap();
    assert!(matches!(attach(&b.run_file("one")).await.unwrap(), Attached::Absent));
    assert!(b.host.list().is_empty());
    // A forgotten key starts anew.
    let (third, mut wait) = b.running(&request).await;
    assert!(!third.existing && third.pid != first.pid);
    assert!(matches!(remove_run(&b.run_file("one")).await, Err(ShimError::Busy(_))));
    herdsman_shim::kill(&b.run_file("one")).await.unwrap();
    end(&mut wait).await;
    remove_run(&b.run_file("one")).await.unwrap();
    assert!(matches!(attach(&b.run_file("one")).await.unwrap(), Attached::Absent));
}

#[tokio::test]
async fn starts_of_one_key_at_once_start_one_task() {
    let b = bench().await;
    let request = b.request("many", "echo x >> count; exec sleep 1000");
    let starts = futures_all((0..20).map(|_| b.host.start(&request))).await;
    let mut pids: Vec<u32> = Vec::new();
    for outcome in starts {
        match outcome.unwrap() {
            StartOutcome::Running(record, _) => pids.push(record.pid),
            other => panic!("{other:?}"),
        }
    }
    pids.dedup();
    assert_eq!(pids.len(), 1);
    eventually("counted", || std::fs::read_to_string(b.dir.path().join("count")).is_ok_and(|t| t == "x\n")).await;
    herdsman_shim::kill(&b.run_file("many")).await.unwrap();
}

async fn futures_all<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut out = Vec::new();
    let mut pending: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        pending.retain_mut(|f| match f.as_mut().poll(cx) {
            std::task::Poll::Ready(v) => {
                out.push(v);
                false
            }
            std::task::Poll::Pending => true,
        });
        if pending.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    out
}

#[tokio::test]
async fn another_host_on_the_directory_finds_the_task() {
    let b = bench().await;
    let (first, _) = b.running(&b.request("kept", "exec sleep 1000")).await;
    let again = open(b.dir.path()).await;
    let runs = again.list();
    assert_eq!(runs.len(), 1);
    let Attached::Running(found, mut wait) = attach(&runs[0].run_file).await.unwrap() else { panic!("not running") };
    assert_eq!((found.pid, found.start_ticks), (first.pid, first.start_ticks));
    kill(found.pid, 15);
    assert_eq!(end(&mut wait).await.signal, 15);
}

#[tokio::test]
async fn tasks_survive_their_zygote() {
    let b = bench().await;
    let (first, mut wait) = b.running(&b.request("early", "read line < /dev/null; exec sleep 1000")).await;
    b.host.end_zygote();
    // The next start brings a new zygote.
    assert_eq!(b.whole("late", "exit 3").await.code, 3);
    assert!(alive(first.pid));
    herdsman_shim::signal(&b.run_file("early"), 15, false).await.unwrap();
    assert_eq!(end(&mut wait).await.signal, 15);
}

#[tokio::test]
async fn a_failed_start_says_why_and_may_be_tried_again() {
    let b = bench().await;
    let mut request = b.request("absent", "true");
    request.exe = b"/no/such/program".to_vec();
    let Err(ShimError::Refused(failure)) = b.host.start(&request).await else { panic!("it started") };
    let error = ShimError::Refused(failure);
    assert_eq!(error.to_string(), "exec /no/such/program: no such file or directory");
    assert!(matches!(attach(&b.run_file("absent")).await.unwrap(), Attached::Absent));
    request.exe = b"/bin/sh".to_vec();
    let (_, mut wait) = b.running(&request).await;
    assert_eq!(end(&mut wait).await.code, 0);

    let mut request = b.request("nowhere", "true");
    request.cwd = b"/no/such/dir".to_vec();
    let error = b.host.start(&request).await.unwrap_err();
    assert_eq!(error.to_string(), "enter working directory /no/such/dir: no such file or directory");
}

#[tokio::test]
async fn nomad_24219_a_killed_shim_takes_its_task_along() {
    let b = bench().await;
    let script = "setsid sleep 1000 & echo $! > left; exec sleep 1000";
    let mut request = b.request("orphan", script);
    request.cgroups = b.host.cgroups().plan("test-orphan", &herdsman_shim::cgroup::Limits::default());
    let grouped = !request.cgroups.is_empty();
    let (record, mut wait) = b.running(&request).await;
    eventually("child", || std::fs::read_to_string(b.dir.path().join("left")).is_ok_and(|t| t.ends_with('\n'))).await;
    let left: u32 = std::fs::read_to_string(b.dir.path().join("left")).unwrap().trim().parse().unwrap();
    kill(record.shim_pid, 9);
    let lost = wait.wait().await.unwrap_err();
    assert_eq!(lost.0.pid, record.pid);
    eventually("task dies with its shim", || !alive(record.pid)).await;
    assert!(matches!(b.host.start(&request).await.unwrap(), StartOutcome::Lost(_)));
    b.host.clean_lost(&lost.0).await;
    if grouped {
        eventually("the rest is gone", || !alive(left)).await;
    } else {
        kill(left, 9);
    }
    // Whoever is of another boot is left alone.
    assert_eq!(b.host.clean_lost(&PidRecord { boot_id: b"x".to_vec(), ..record }).await, 0);
}

#[tokio::test]
async fn commands_run_beside_the_task() {
    let b = bench().await;
    let (_, mut wait) = b.running(&b.request("host", "exec sleep 1000")).await;
    for round in 0..20 {
        let (mut out, out_w) = std::io::pipe().unwrap();
        let (_in_r, in_w) = std::io::pipe().unwrap();
        drop(in_w);
        let argv = ["sh".to_owned(), "-c".to_owned(), "echo $COLOUR; pwd; exit 7".to_owned()];
        let fds =
            [std::os::fd::AsFd::as_fd(&_in_r), std::os::fd::AsFd::as_fd(&out_w), std::os::fd::AsFd::as_fd(&out_w)];
        let mut session = exec(&b.run_file("host"), &argv, false, &fds).await.unwrap();
        drop(out_w);
        assert_eq!(session.wait().await.unwrap(), 7, "nomad_10657: round {round}");
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("green\n{}\n", b.dir.path().display()));
    }
    let null = std::fs::File::open("/dev/null").unwrap();
    let fds = [std::os::fd::AsFd::as_fd(&null); 3];
    let error = exec(&b.run_file("host"), &["/no/such/bin".to_owned()], false, &fds).await.unwrap_err();
    assert_eq!(error.to_string(), "exec /no/such/bin: no such file or directory");
    // Nobody listens any more: the command ends, the task does not.
    let argv = ["sh".to_owned(), "-c".to_owned(), "echo $$ > exec-pid; exec sleep 1000".to_owned()];
    let session = exec(&b.run_file("host"), &argv, false, &fds).await.unwrap();
    let file = b.dir.path().join("exec-pid");
    eventually("command runs", || std::fs::read_to_string(&file).is_ok_and(|t| t.ends_with('\n'))).await;
    let pid: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    drop(session);
    eventually("command ends", || !alive(pid)).await;
    herdsman_shim::kill(&b.run_file("host")).await.unwrap();
    assert_eq!(end(&mut wait).await.signal, 9);
}
