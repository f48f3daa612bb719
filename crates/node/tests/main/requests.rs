//! Requests over bulk channels.

use crate::folder::Folder;
use crate::server::{Server, recv, send};
use crate::setup::{job, node, sh};
use base64::Engine;
use herdsman_model::*;
use herdsman_proto::{BulkError, BulkMessage, NodeRequest};
use herdsman_world::World;
use serde_json::{Value, json};

fn text(frames: &[Vec<u8>]) -> String {
    let mut out = Vec::new();
    for frame in frames {
        let frame: Value = serde_json::from_slice(frame).unwrap();
        if let Some(data) = frame["Data"].as_str() {
            out.extend(base64::engine::general_purpose::STANDARD.decode(data).unwrap());
        }
    }
    String::from_utf8(out).unwrap()
}

fn error(code: u32, message: &str) -> Result<(), BulkError> {
    Err(BulkError { code, message: message.into() })
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_followed_to_the_end() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let script = "for n in 1 2 3 4 5; do echo line $n; sleep 0.1; done; echo oops >&2";
    let id = server.place(&job("logs", JobType::Batch, vec![sh("main", None, script)]));
    server.until_status(id, ClientStatus::Running).await;
    let logs = |kind: &str, origin: &str, offset, follow| NodeRequest::Logs {
        alloc_id: id,
        task: "main".into(),
        kind: kind.into(),
        origin: origin.into(),
        offset,
        follow,
    };
    let (frames, result) = server.ask(logs("stdout", "start", 0, true)).await;
    assert_eq!(result, Ok(()));
    assert_eq!(text(&frames), "line 1\nline 2\nline 3\nline 4\nline 5\n");
    server.until_status(id, ClientStatus::Complete).await;
    let (frames, _) = server.ask(logs("stderr", "start", 0, false)).await;
    assert_eq!(text(&frames), "oops\n");
    let (frames, _) = server.ask(logs("stdout", "end", 7, false)).await;
    assert_eq!(text(&frames), "line 5\n");
    let last: Value = serde_json::from_slice(frames.last().unwrap()).unwrap();
    assert_eq!((last["File"].as_str(), last["Offset"].as_i64()), (Some("alloc/logs/main.stdout.0"), Some(35)));
    assert_eq!(server.ask(logs("stdin", "", 0, false)).await.1, error(400, "must provide log type (stdout/stderr)"));
    assert_eq!(server.ask(logs("stdout", "middle", 0, false)).await.1, error(400, "origin must be start or end"));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_and_followed_inside_the_allocation_only() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let script = "echo hello > local/file; ln -s /etc/passwd local/link; echo s > secrets/s; exec sleep 300";
    let id = server.place(&job("files", JobType::Service, vec![sh("main", None, script)]));
    server.until_status(id, ClientStatus::Running).await;
    let root = dir.path().join(format!("alloc/{id}"));
    server.until("the file is there", |_| root.join("main/secrets/s").exists().then_some(())).await;
    let list = server.json(NodeRequest::FsList { alloc_id: id, path: "/".into() }).await;
    let names: Vec<_> = list.as_array().unwrap().iter().map(|f| f["Name"].as_str().unwrap()).collect();
    assert_eq!(names, ["alloc", "main"]);
    let stat = server.json(NodeRequest::FsStat { alloc_id: id, path: "main/local/file".into() }).await;
    assert_eq!((stat["Size"].as_i64(), stat["IsDir"].as_bool()), (Some(6), Some(false)));
    let read = |path: &str| NodeRequest::FsRead { alloc_id: id, path: path.into(), offset: 1, limit: 3 };
    assert_eq!(server.ask(read("main/local/file")).await.0.concat(), b"ell");
    assert!(server.ask(read("main/local/link")).await.1.is_err());
    let secret = "Reading secret file prohibited: main/secrets/s";
    assert_eq!(server.ask(read("main/secrets/s")).await.1, error(500, secret));
    let escape = server.ask(NodeRequest::FsList { alloc_id: id, path: "../..".into() }).await.1;
    assert_eq!(escape, error(500, "Path escapes the alloc directory"));
    let unknown = AllocId([1; 16]);
    let missing = server.ask(NodeRequest::FsList { alloc_id: unknown, path: "/".into() }).await.1;
    assert_eq!(missing, error(404, &format!("Unknown allocation \"{unknown}\"")));
    let mut wire = server
        .open(NodeRequest::FsStream {
            alloc_id: id,
            path: "main/local/file".into(),
            origin: "start".into(),
            offset: 0,
            limit: 0,
            follow: true,
        })
        .await;
    let Some(BulkMessage::Data(first)) = recv(&mut wire).await else { panic!("no data") };
    assert_eq!(text(&[first]), "hello\n");
    std::fs::write(root.join("main/local/file"), "hello\nmore\n").unwrap();
    let mut all = Vec::new();
    while !text(&all).contains("more") {
        let Some(BulkMessage::Data(bytes)) = recv(&mut wire).await else { panic!("the stream ended") };
        all.push(bytes);
    }
    drop(wire);
    server.stop(id);
    server.until_status(id, ClientStatus::Complete).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_beside_a_task() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let id = server.place(&job("exec", JobType::Service, vec![sh("main", None, "exec sleep 300")]));
    server.until_status(id, ClientStatus::Running).await;
    let exec = |task: &str, command: &[&str]| NodeRequest::Exec {
        alloc_id: id,
        task: task.into(),
        command: command.iter().map(|c| c.to_string()).collect(),
        tty: false,
    };
    let mut wire = server.open(exec("main", &["/bin/sh", "-c", "cat; exit 7"])).await;
    for frame in [json!({"stdin": {"data": "aGVsbG8K"}}), json!({}), json!({"stdin": {"close": true}})] {
        send(&mut wire, BulkMessage::Data(serde_json::to_vec(&frame).unwrap())).await;
    }
    let mut frames = Vec::new();
    while let Some(BulkMessage::Data(bytes)) = recv(&mut wire).await {
        frames.push(serde_json::from_slice::<Value>(&bytes).unwrap());
    }
    assert!(frames.contains(&json!({"stdout": {"data": "aGVsbG8K"}})), "{frames:?}");
    assert_eq!(frames.last(), Some(&json!({"exited": true, "result": {"exit_code": 7}})));
    assert_eq!(server.ask(exec("ghost", &["/bin/true"])).await.1, error(500, "task not found"));
    let missing = server.ask(exec("main", &["/no/such/bin"])).await.1.unwrap_err();
    assert!(missing.message.contains("no such file or directory"), "{}", missing.message);
    server.stop(id);
    server.until_status(id, ClientStatus::Complete).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_restarts_and_collection_on_request() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let script = "trap 'echo usr1 >> $NOMAD_ALLOC_DIR/data/seen' USR1; echo up >> $NOMAD_ALLOC_DIR/data/seen; while :; do sleep 0.05; done";
    let tasks = vec![sh("main", None, script), sh("once", Some((Hook::Poststart, false)), "exit 0")];
    let id = server.place(&job("asked", JobType::Service, tasks));
    let seen = dir.path().join(format!("alloc/{id}/alloc/data/seen"));
    let lines = |wanted: &str| std::fs::read_to_string(&seen).is_ok_and(|t| t == wanted).then_some(());
    server.until("it runs", |_| lines("up\n")).await;
    let dead = |s: &Server| s.state(id).filter(|u| u.task_states["once"].state == TaskPhase::Dead);
    server.until("the one-shot ended", dead).await;
    let signal = |task: &str| NodeRequest::Signal { alloc_id: id, task: task.into(), signal: "SIGUSR1".into() };
    assert_eq!(server.ask(signal("main")).await.1, Ok(()));
    server.until("the signal arrived", |_| lines("up\nusr1\n")).await;
    assert_eq!(server.ask(signal("ghost")).await.1, error(500, "Task not found"));
    let restart = |task: &str, all| NodeRequest::Restart { alloc_id: id, task: task.into(), all_tasks: all };
    assert_eq!(server.ask(restart("ghost", false)).await.1, error(500, "Could not find task runner for task: ghost"));
    assert_eq!(server.ask(restart("once", false)).await.1, error(500, "Task not running"));
    assert_eq!(server.ask(restart("", false)).await.1, Ok(()), "finished tasks are no error");
    server.until("it was started again", |_| lines("up\nusr1\nup\n")).await;
    let not_eligible = error(500, "No such allocation on client, or allocation not eligible for GC");
    assert_eq!(server.ask(NodeRequest::AllocGc { alloc_id: id }).await.1, not_eligible);
    let stats = server.json(NodeRequest::AllocStats { alloc_id: id, task: String::new() }).await;
    assert!(stats["Tasks"]["main"]["ResourceUsage"]["MemoryStats"]["RSS"].as_u64().unwrap() > 0, "{stats}");
    let stats = server.json(NodeRequest::NodeStats).await;
    assert!(stats["Memory"]["Total"].as_u64().unwrap() > 0 && !stats["CPU"].as_array().unwrap().is_empty());
    server.stop(id);
    server.until_status(id, ClientStatus::Complete).await;
    let collected = |result: &Result<(), BulkError>| result.is_ok();
    let mut result = server.ask(NodeRequest::AllocGc { alloc_id: id }).await.1;
    for _ in 0..50 {
        if collected(&result) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        result = server.ask(NodeRequest::AllocGc { alloc_id: id }).await.1;
    }
    assert_eq!(result, Ok(()));
    assert!(!dir.path().join(format!("alloc/{id}")).exists());
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nomad_18232_files_and_logs_of_a_collected_allocation_are_not_found() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let id = server.place(&job("gone", JobType::Batch, vec![sh("main", None, "echo here")]));
    server.until_status(id, ClientStatus::Complete).await;
    let collected = async {
        while server.ask(NodeRequest::AllocGc { alloc_id: id }).await.1.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), collected).await.unwrap();
    let logs = NodeRequest::Logs {
        alloc_id: id,
        task: "main".into(),
        kind: "stdout".into(),
        origin: "start".into(),
        offset: 0,
        follow: false,
    };
    let list = NodeRequest::FsList { alloc_id: id, path: "/".into() };
    for request in [logs, list] {
        assert_eq!(server.ask(request).await.1, error(404, &format!("Unknown allocation \"{id}\"")));
    }
    node.shutdown().await;
}
