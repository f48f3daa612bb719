//! Containers: what they get, how they end, and what outlives the agent.

use std::collections::BTreeSet;
use std::time::Duration;

use herdsman_drivers::{
    Driver, DriverError, ExecInput, ExecOutput, ExecSpec, Handle, Health, Mount, Port, RecoverError, StartKey, TaskSpec,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::engine::{IMAGE, Node, docker, ready, shell};
use crate::support::{alive, end, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn fingerprints() {
    let mut node = Node::new();
    node.options.endpoint = "unix:///nonexistent/docker.sock".to_owned();
    let gone = node.driver().fingerprint().await;
    assert!(gone.health == Health::Undetected && gone.attributes.is_empty());
    assert!(gone.description.contains("/nonexistent/docker.sock"), "{}", gone.description);
    if !ready() {
        return;
    }
    let mut node = Node::new();
    node.options.volumes_enabled = true;
    let here = node.driver().fingerprint().await;
    assert_eq!(here.health, Health::Healthy);
    let attribute = |name: &str| here.attributes.get(name).map(String::as_str).unwrap_or_default().to_owned();
    assert_eq!(attribute("driver.docker"), "1");
    assert_eq!(attribute("driver.docker.os_type"), "linux");
    assert_eq!(attribute("driver.docker.volumes.enabled"), "true");
    assert_eq!(attribute("driver.docker.version"), docker(&["version", "--format", "{{.Server.Version}}"]).unwrap());
    assert!(attribute("driver.docker.runtimes").split(',').any(|r| r == "runc"));
    attribute("driver.docker.bridge_ip").parse::<std::net::IpAddr>().expect("an address");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_sees_its_directories_and_limits() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let driver = node.driver();
    let mut spec = node.script(
        "web",
        "while [ ! -e /local/go ]; do sleep 0.1; done; echo $COLOUR; cat /local/in /volume/v; echo s > /secrets/s; echo d > /alloc/data/d; \
         echo x > /alloc/logs/x || echo read-only; echo x > /volume/v || echo read-only; echo oops >&2; exit 9",
    );
    std::fs::write(spec.dirs.local.join("in"), "input\n").unwrap();
    std::fs::create_dir(node.dir.path().join("volume")).unwrap();
    std::fs::write(node.dir.path().join("volume/v"), "volume\n").unwrap();
    spec.mounts = vec![Mount {
        host_path: node.dir.path().join("volume"),
        task_path: "/volume".to_owned(),
        readonly: true,
        ..Mount::default()
    }];
    spec.job_id = "job-1".to_owned();
    let (alloc, dirs) = (spec.key.clone().unwrap().alloc_id, spec.dirs.clone());
    let (handle, network) = driver.start(spec).await.unwrap();
    assert!(handle.started_ns > 0);
    network.unwrap().ip.parse::<std::net::IpAddr>().unwrap();
    std::fs::write(dirs.local.join("go"), "").unwrap();
    let name = format!("web-{alloc}");
    let seen: Value = serde_json::from_str(&docker(&["inspect", &name]).unwrap()).unwrap();
    let at = |p: &str| seen.pointer(&format!("/0{p}")).cloned().unwrap_or_default();
    assert_eq!(at("/Config/Labels/com.hashicorp.nomad.alloc_id"), json!(alloc));
    assert_eq!(at("/Config/Labels/herdsman.node_id"), json!(node.options.node_id));
    assert_eq!((at("/HostConfig/Memory"), at("/HostConfig/CpuShares")), (json!(64 << 20), json!(100)));
    let ended = end(&driver, &handle).await;
    assert_eq!((ended.exit_code, ended.oom_killed), (9, false));
    assert_eq!(ended.err.as_deref(), Some("Docker container exited with non-zero exit code: 9"));
    assert!(ended.finished_ns >= handle.started_ns);
    assert_eq!(node.log("web.stdout.0"), "green\ninput\nvolume\nread-only\nread-only\n");
    assert!(node.log("web.stderr.0").ends_with("oops\n"));
    assert_eq!(std::fs::read_to_string(dirs.secrets.join("s")).unwrap(), "s\n");
    assert_eq!(std::fs::read_to_string(dirs.shared.join("data/d")).unwrap(), "d\n");
    driver.destroy(&handle, false).await.unwrap();
    assert!(docker(&["inspect", &name]).is_err() && node.containers().is_empty());
    assert!(matches!(driver.recover(&handle).await, Err(RecoverError::Lost(_))));
}

/// The lines of all files of a stream.
fn lines(node: &Node, stream: &str) -> Vec<String> {
    let mut out = String::new();
    for index in 0.. {
        let Ok(text) = std::fs::read_to_string(node.logs().join(format!("{stream}.{index}"))) else { break };
        out.push_str(&text);
    }
    out.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_neither_lost_nor_doubled_when_agents_come_and_go() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let script = "i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); [ $((i%100)) = 0 ] && sleep 0.1; done; echo end";
    let (handle, _) = node.driver().start(node.script("t", script)).await.unwrap();
    // The first is gone already; each of these for a while.
    for pause in [50, 3, 120, 20, 1, 200, 70, 333] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let driver = node.driver();
        driver.recover(&handle).await.unwrap();
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    let driver = node.driver();
    driver.recover(&handle).await.unwrap();
    let ended = end(&driver, &handle).await;
    assert!(ended.success() && ended.lost_output == 0, "{ended:?}");
    let expected = |word: &str| (0..3000).map(|i| format!("{word} {i}")).collect::<Vec<_>>();
    assert_eq!(lines(&node, "t.stdout"), [expected("out"), vec!["end".to_owned()]].concat());
    assert_eq!(lines(&node, "t.stderr"), expected("err"));
    driver.destroy(&handle, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_without_an_agent_is_known_later() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let mut spec = node.script("t", "sleep 0.3; echo last; exit 4");
    let before = node.driver().handle(&spec).unwrap();
    let again = spec.clone();
    let (handle, _) = node.driver().start(spec.clone()).await.unwrap();
    let container = handle.data["container_id"].as_str().unwrap().to_owned();
    eventually("the container ends", || {
        docker(&["inspect", "--format", "{{.State.Status}}", &container]).unwrap() == "exited"
    })
    .await;
    // With the handle from before the start, as an agent has it that was killed in between.
    let driver = node.driver();
    driver.recover(&before).await.unwrap();
    let ended = end(&driver, &before).await;
    assert_eq!(ended.exit_code, 4);
    assert_eq!(node.log("t.stdout.0"), "last\n");
    // A second start with the same key is the first.
    let (same, _) = node.driver().start(again).await.unwrap();
    assert_eq!(same.data, handle.data);
    // The next attempt is another, in the same log.
    spec.key = Some(StartKey { attempt: 1, ..spec.key.unwrap() });
    let (next, _) = driver.start(spec).await.unwrap();
    assert_ne!(next.data, handle.data);
    assert_eq!(end(&driver, &next).await.exit_code, 4);
    assert_eq!(node.log("t.stdout.0"), "last\nlast\n");
    driver.destroy(&handle, false).await.unwrap();
    driver.destroy(&next, false).await.unwrap();
    assert!(node.containers().is_empty());
    let never = Handle { key: StartKey { attempt: 9, ..next.key.clone() }, data: Value::Null, ..next };
    assert_eq!(driver.recover(&never).await, Err(RecoverError::NeverStarted));
}

#[tokio::test(flavor = "multi_thread")]
async fn nomad_24940_a_name_in_use_is_no_obstacle() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let driver = node.driver();
    let spec = node.script("t", "exit 5");
    let key = spec.key.clone().unwrap();
    let name = format!("t-{}", key.alloc_id);
    let foreign =
        docker(&["create", "--name", &name, "--label", "com.hashicorp.nomad.alloc_id=x", IMAGE, "/bin/true"]).unwrap();
    let (handle, _) = driver.start(spec).await.unwrap();
    assert_eq!(end(&driver, &handle).await.exit_code, 5);
    driver.destroy(&handle, false).await.unwrap();
    assert!(docker(&["inspect", &foreign]).is_ok(), "a container of somebody else was removed");
    docker(&["rm", &foreign]).unwrap();

    // One of ours, created by an agent that was killed before it started it.
    let label = |k: &str, v: &str| format!("herdsman.{k}={v}");
    let data_dir = node.options.data_dir.to_string_lossy().into_owned();
    let labels =
        [label("node_id", &node.options.node_id), label("data_dir", &data_dir), label("start", &key.file_name())];
    let mut args = vec!["create", "--name", &name];
    labels.iter().for_each(|l| args.extend(["--label", l]));
    let left = docker(&[&args[..], &[IMAGE, "/bin/true"]].concat()).unwrap();
    let (handle, _) = driver.start(node.script("t", "exit 6")).await.unwrap();
    assert_ne!(handle.data["container_id"], json!(left));
    assert_eq!(end(&driver, &handle).await.exit_code, 6);
    driver.destroy(&handle, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_own_containers_that_nobody_knows_are_removed() {
    if !ready() {
        return;
    }
    let mut node = Node::new();
    node.options.dangling.period = Duration::from_millis(300);
    node.options.dangling.creation_grace = Duration::ZERO;
    let data_dir = format!("herdsman.data_dir={}", node.options.data_dir.display());
    let run = |labels: &[&str]| {
        let mut args = vec!["run", "-d"];
        labels.iter().for_each(|l| args.extend(["--label", l]));
        docker(&[&args[..], &[IMAGE, "/bin/sleep", "1000"]].concat()).unwrap()
    };
    let foreign = [
        run(&["com.hashicorp.nomad.alloc_id=x"]),
        run(&["herdsman.node_id=other", &data_dir, "herdsman.start=s"]),
        run(&[&format!("herdsman.node_id={}", node.options.node_id), "herdsman.data_dir=/other", "herdsman.start=s"]),
    ];
    let old = Node { dir: tempfile::tempdir().unwrap(), options: node.options.clone() };
    let mut dangling = old.spec("dangling", shell("sleep 1000"));
    dangling.key =
        Some(StartKey { alloc_id: node.options.node_id.clone(), task: "dangling".to_owned(), run: 0, attempt: 0 });
    node.options.dangling.enabled = false;
    let (unknown, _) = node.driver().start(dangling).await.unwrap();
    node.options.dangling.enabled = true;
    let unknown = unknown.data["container_id"].as_str().unwrap().to_owned();
    let driver = node.driver();
    let (known, _) = driver.start(node.script("known", "sleep 1000")).await.unwrap();
    eventually("the container nobody knows is removed", || docker(&["inspect", &unknown]).is_err()).await;
    for container in &foreign {
        assert!(docker(&["inspect", "--format", "{{.State.Running}}", container]).is_ok_and(|r| r == "true"));
        docker(&["rm", "-f", container]).unwrap();
    }
    assert!(docker(&["inspect", known.data["container_id"].as_str().unwrap()]).is_ok());
    assert_eq!(driver.destroy(&known, false).await, Err(DriverError::Failed("cannot destroy running task".to_owned())));
    driver.destroy(&known, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn want_of_memory_is_told() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let mut spec = node.script("t", "x=a; while true; do x=$x$x; done");
    spec.resources.memory_mb = 16;
    let driver = node.driver();
    let (handle, _) = driver.start(spec).await.unwrap();
    let ended = end(&driver, &handle).await;
    assert_eq!((ended.exit_code, ended.oom_killed, ended.err.as_deref()), (137, true, Some("OOM Killed")));
    driver.destroy(&handle, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_by_signal_then_by_force() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let driver = node.driver();
    let up = "echo up; while true; do sleep 0.1; done";
    let (polite, _) = driver.start(node.script("polite", &format!("trap 'exit 3' INT; {up}"))).await.unwrap();
    let (deaf, _) = driver.start(node.script("deaf", &format!("trap '' TERM; {up}"))).await.unwrap();
    for task in ["polite", "deaf"] {
        eventually("the task is up", || node.log(&format!("{task}.stdout.0")).contains("up")).await;
    }
    driver.stop(&polite, Duration::from_secs(30), "SIGINT").await.unwrap();
    assert_eq!(end(&driver, &polite).await.exit_code, 3);
    driver.stop(&deaf, Duration::from_millis(200), "").await.unwrap();
    assert_eq!(end(&driver, &deaf).await.exit_code, 137);
    assert_eq!(driver.signal(&deaf, "SIGTERM").await, Err(DriverError::NotRunning));
    for handle in [&polite, &deaf] {
        driver.destroy(handle, false).await.unwrap();
    }
}

/// Runs a command beside a task; returns its code and output.
async fn exec(
    driver: &dyn Driver,
    handle: &Handle,
    command: &[&str],
    tty: bool,
    inputs: Vec<ExecInput>,
) -> (i32, String, String) {
    let (send, input) = mpsc::channel(64);
    let (output, mut receive) = mpsc::channel(64);
    for message in inputs {
        send.send(message).await.unwrap();
    }
    let spec = ExecSpec { command: command.iter().map(|c| (*c).to_owned()).collect(), tty };
    let collect = async {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some(piece) = receive.recv().await {
            match piece {
                ExecOutput::Stdout(bytes) => out.extend(bytes),
                ExecOutput::Stderr(bytes) => err.extend(bytes),
                ExecOutput::StdoutClosed | ExecOutput::StderrClosed => {}
            }
        }
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    };
    let (code, (out, err)) = tokio::join!(driver.exec(handle, spec, input, output), collect);
    drop(send);
    (code.unwrap(), out, err)
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_beside_a_task() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let driver = node.driver();
    let (handle, _) = driver.start(node.script("t", "sleep 1000")).await.unwrap();
    assert!(alive(handle.pid));
    let data = |text: &str| ExecInput::Data(text.as_bytes().to_vec());
    let got = exec(
        &driver,
        &handle,
        &["/bin/sh", "-c", "cat; echo e >&2; exit 5"],
        false,
        vec![data("hello"), ExecInput::Close],
    )
    .await;
    assert_eq!(got, (5, "hello".to_owned(), "e\n".to_owned()));
    let size = ExecInput::Resize { rows: 33, cols: 77 };
    let got = exec(&driver, &handle, &["/bin/sh"], true, vec![size, data("sleep 0.3; stty size; exit 2\n")]).await;
    assert!(got.0 == 2 && got.1.contains("33 77"), "{got:?}");

    // A caller that goes away takes its command with it.
    let (send, input) = mpsc::channel(1);
    let (output, mut receive) = mpsc::channel(16);
    let spec =
        ExecSpec { command: ["/bin/sh", "-c", "echo here; sleep 999; true"].map(str::to_owned).into(), tty: false };
    let command = driver.exec(&handle, spec, input, output);
    let leave = async {
        assert_eq!(receive.recv().await, Some(ExecOutput::Stdout(b"here\n".to_vec())));
        drop(send);
    };
    let (result, ()) = tokio::join!(command, leave);
    assert!(result.is_err());
    let container = handle.data["container_id"].as_str().unwrap().to_owned();
    eventually("the command is ended", || !docker(&["top", &container]).unwrap().contains("echo here")).await;

    let stats = driver.stats(&handle).await.unwrap();
    assert!(stats.usage.memory.usage > 0 && stats.usage.memory.measured.contains(&"RSS"));
    driver.stop(&handle, Duration::ZERO, "").await.unwrap();
    assert!(matches!(driver.stats(&handle).await, Err(DriverError::NotRunning)));
    assert!(!alive(handle.pid));
    driver.destroy(&handle, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_stay_in_the_allocation() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let driver = node.driver();
    let with = |task: &str, volumes: &[&str]| -> TaskSpec {
        let mut spec = node.script(task, "echo t > /v/made; cat /m/file; echo x > /m/file || true");
        spec.config["volumes"] = json!(volumes);
        spec.config["mount"] = json!([{"type": "bind", "source": "local/m", "target": "/m", "readonly": true}]);
        spec
    };
    let spec = with("t", &["local/v:/v"]);
    std::fs::create_dir(spec.dirs.local.join("m")).unwrap();
    std::fs::write(spec.dirs.local.join("m/file"), "content\n").unwrap();
    let local = spec.dirs.local.clone();
    let (handle, _) = driver.start(spec).await.unwrap();
    end(&driver, &handle).await;
    assert_eq!(node.log("t.stdout.0"), "content\n");
    assert_eq!(std::fs::read_to_string(local.join("v/made")).unwrap(), "t\n");
    assert_eq!(std::fs::read_to_string(local.join("m/file")).unwrap(), "content\n");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(node.dir.path().join("state").to_str().unwrap()), "a mount was left");
    driver.destroy(&handle, false).await.unwrap();

    std::os::unix::fs::symlink("/etc", local.join("out")).unwrap();
    for volume in ["local/out:/v", "local/out/ssl:/v", "/etc:/v", "../../x:/v"] {
        let error = driver.start(with("t", &[volume])).await.unwrap_err();
        assert!(!error.recoverable, "{volume}: {error}");
    }
    assert!(node.containers().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nomad_9951_both_ports_reach_the_task() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let driver = node.driver();
    let mut spec = node.script("t", "while true; do echo served | nc -l -p 80; done");
    spec.config["ports"] = json!(["a", "b"]);
    // Both at once, so that they differ.
    let free = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let hosts = free.each_ref().map(|listener| listener.local_addr().unwrap().port());
    drop(free);
    let port =
        |label: &str, host_port| Port { label: label.to_owned(), host_ip: "127.0.0.1".to_owned(), host_port, to: 80 };
    spec.ports = vec![port("a", hosts[0]), port("b", hosts[1])];
    let (handle, _) = driver.start(spec).await.unwrap();
    for host_port in hosts {
        eventually("the port answers", || {
            let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", host_port)) else { return false };
            stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let mut text = String::new();
            let _ = std::io::Read::read_to_string(&mut stream, &mut text);
            text == "served\n"
        })
        .await;
    }
    driver.destroy(&handle, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminals_output_is_copied_too() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let mut spec =
        node.script("t", "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; echo -n prompt");
    spec.config["tty"] = json!(true);
    let (handle, _) = node.driver().start(spec).await.unwrap();
    for pause in [30, 200, 70] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        node.driver().recover(&handle).await.unwrap();
    }
    let driver = node.driver();
    assert!(end(&driver, &handle).await.success());
    let expected: String = (0..200).map(|i| format!("line {i}\r\n")).chain(["prompt".to_owned()]).collect();
    assert_eq!(node.log("t.stdout.0"), expected);
    driver.destroy(&handle, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn much_output_is_kept_in_files_of_their_size() {
    const LINES: usize = 20_000;
    if !ready() {
        return;
    }
    // The engine keeps much less than the task writes.
    let mut node = Node::new();
    node.options.logging_config.insert("max-size".to_owned(), "4m".to_owned());
    let driver = node.driver();
    let script = format!(
        "l=$(head -c 990 /dev/zero | tr '\\0' x); i=0; while [ $i -lt {LINES} ]; do echo $i $l; i=$((i+1)); done"
    );
    let mut spec = node.script("t", &script);
    spec.log.max_file_size_mb = 1;
    spec.log.max_files = 50;
    let (handle, _) = driver.start(spec).await.unwrap();
    let ended = end(&driver, &handle).await;
    assert!(ended.success() && ended.lost_output == 0, "{ended:?}");
    let numbers: Vec<String> =
        lines(&node, "t.stdout").iter().map(|l| l.split(' ').next().unwrap_or_default().to_owned()).collect();
    let missing: Vec<usize> = (0..LINES).filter(|i| numbers.get(*i) != Some(&i.to_string())).take(3).collect();
    let around = missing.first().map(|at| numbers.get(at.saturating_sub(3)..at + 8));
    assert!(
        missing.is_empty() && numbers.len() == LINES,
        "{} lines, first wrong: {missing:?} in {around:?}",
        numbers.len()
    );
    let sizes: BTreeSet<u64> =
        std::fs::read_dir(node.logs()).unwrap().flatten().map(|e| e.metadata().unwrap().len()).collect();
    assert!(sizes.iter().all(|s| *s <= 1 << 20) && sizes.len() > 2, "{sizes:?}");
    driver.destroy(&handle, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_not_there_is_told() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let driver = node.driver();
    let error = driver.start(node.spec("t", json!({"image": IMAGE, "command": "/nonexistent"}))).await.unwrap_err();
    assert!(error.message.contains("Failed to start container") && error.message.contains("/nonexistent"), "{error}");
    assert!(!error.recoverable);
    assert!(node.containers().is_empty());
    let unknown = driver.start(node.spec("t", json!({"image": IMAGE, "imagee": "x"}))).await.unwrap_err();
    assert!(unknown.message.contains("imagee"));
}
