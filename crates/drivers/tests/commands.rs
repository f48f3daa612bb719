//! Commands run beside tasks.

use std::time::Duration;

use herdsman_drivers::{Driver, ExecError, ExecInput, ExecOutput, ExecSpec};
use tokio::sync::mpsc;

use crate::support::{EVENTUALLY, Node, node, shell};

/// Runs a command and returns its exit code, output and error output.
async fn run(
    driver: &dyn Driver,
    handle: &herdsman_drivers::Handle,
    script: &str,
    tty: bool,
    input: Vec<ExecInput>,
) -> (Result<i32, ExecError>, String, String) {
    let spec = ExecSpec { command: vec!["/bin/sh".into(), "-c".into(), script.into()], tty };
    let (in_tx, in_rx) = mpsc::channel(16);
    let (out_tx, mut out_rx) = mpsc::channel(16);
    for message in input {
        in_tx.send(message).await.unwrap();
    }
    let collect = async {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some(message) = out_rx.recv().await {
            match message {
                ExecOutput::Stdout(bytes) => out.extend(bytes),
                ExecOutput::Stderr(bytes) => err.extend(bytes),
                _ => {}
            }
        }
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    };
    let both = async { tokio::join!(driver.exec(handle, spec, in_rx, out_tx), collect) };
    let (code, (out, err)) = tokio::time::timeout(EVENTUALLY, both).await.expect("the command ends");
    drop(in_tx);
    (code, out, err)
}

async fn with_tasks(test: impl AsyncFn(&Node, &dyn Driver, &herdsman_drivers::Handle)) {
    let n = node().await;
    let drivers: [Box<dyn Driver>; 2] = [Box::new(n.raw_exec()), Box::new(n.exec())];
    for driver in drivers {
        let (handle, _) = driver.start(n.spec(driver.name(), shell("sleep 1000"))).await.unwrap();
        test(&n, driver.as_ref(), &handle).await;
        driver.destroy(&handle, true).await.unwrap();
    }
}

#[tokio::test]
async fn streams_and_exit_code() {
    with_tasks(async |_, driver, handle| {
        let (code, out, err) = run(driver, handle, "echo out; echo err >&2; echo $COLOUR; exit 7", false, vec![]).await;
        assert_eq!((code, out.as_str(), err.as_str()), (Ok(7), "out\ngreen\n", "err\n"));
        let input = vec![ExecInput::Data(b"hello\n".to_vec()), ExecInput::Data(b"more\n".to_vec()), ExecInput::Close];
        let (code, out, _) = run(driver, handle, "cat", false, input).await;
        assert_eq!((code, out.as_str()), (Ok(0), "hello\nmore\n"));
        let (code, ..) = run(driver, handle, "kill -9 $$", false, vec![]).await;
        assert_eq!(code, Ok(137));
        let (code, out, _) = run(driver, handle, "head -c 3000000 /dev/zero | tr '\\0' x", false, vec![]).await;
        assert_eq!((code, out.len()), (Ok(0), 3_000_000), "{} {:?}", driver.name(), driver.stats(handle).await);
    })
    .await;
}

#[tokio::test]
async fn nomad_10657_exit_codes_of_short_commands_are_kept() {
    with_tasks(async |_, driver, handle| {
        for _ in 0..50 {
            let (code, ..) = run(driver, handle, "exit 7", false, vec![]).await;
            assert_eq!(code, Ok(7));
        }
    })
    .await;
}

#[tokio::test]
async fn a_terminal_has_a_size() {
    with_tasks(async |_, driver, handle| {
        let input = vec![ExecInput::Resize { rows: 24, cols: 80 }, ExecInput::Data(b"go\n".to_vec())];
        let script = "read line; stty size; test -t 0 && test -t 1 && exit 3";
        let (code, out, _) = run(driver, handle, script, true, input).await;
        assert_eq!(code, Ok(3));
        assert!(out.contains("24 80\r\n"), "{out:?}");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_run_says_why() {
    with_tasks(async |_, driver, handle| {
        let spec = ExecSpec { command: vec!["/no/such/bin".into()], tty: false };
        let (_in_tx, in_rx) = mpsc::channel(1);
        let (out_tx, _out_rx) = mpsc::channel(1);
        let error = driver.exec(handle, spec, in_rx, out_tx).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "rpc error: code = Unknown desc = failed to start command: fork/exec /no/such/bin: no such file or directory"
        );
    })
    .await;
}

#[tokio::test]
async fn commands_end_with_the_caller_and_with_the_task() {
    let n = node().await;
    let driver = n.raw_exec();
    let (handle, _) = driver.start(n.spec("t", shell("sleep 1000"))).await.unwrap();
    let pid_file = n.dir.path().join("alloc-1/t/pid");
    let script = format!("echo $$ > {}; exec sleep 1000", pid_file.display());
    let spec = ExecSpec { command: vec!["/bin/sh".into(), "-c".into(), script.clone()], tty: false };
    let (in_tx, in_rx) = mpsc::channel(1);
    let (out_tx, _out_rx) = mpsc::channel(1);
    let began = || std::fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n'));
    tokio::select! {
        ended = driver.exec(&handle, spec, in_rx, out_tx) => panic!("it ended by itself: {ended:?}"),
        () = crate::support::eventually("the command runs", began) => {}
    }
    // The caller is gone.
    let pid: u32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    crate::support::eventually("command ends", || !crate::support::alive(pid)).await;
    drop(in_tx);
    let spec = ExecSpec { command: vec!["/bin/sleep".into(), "1000".into()], tty: false };
    let (_in_tx, in_rx) = mpsc::channel(1);
    let (out_tx, _out_rx) = mpsc::channel(16);
    let (ended, killed) = tokio::join!(driver.exec(&handle, spec, in_rx, out_tx), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        driver.destroy(&handle, true).await
    });
    assert!(killed.is_ok() && ended != Ok(0));
}
