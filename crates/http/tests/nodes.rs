//! What nodes know, through a node in session: a small one that answers requests as the test says.

use crate::support::{Cluster, EVENTUALLY, Streamed, connect, job, node_row};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use herdsman_proto::{
    BulkEnd, BulkError, BulkFrame, BulkHello, BulkMessage, Hello, MAGIC, NodeFrame, NodeMessage, NodeRequest, Purpose,
    SESSION_VERSION, ServerFrame, ServerMessage,
};
use http_body_util::Full;
use prost::Message;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

type Answers = Arc<dyn Fn(NodeRequest) -> Vec<BulkMessage> + Send + Sync>;

fn framed(stream: TcpStream) -> Framed<TcpStream, LengthDelimitedCodec> {
    Framed::new(stream, LengthDelimitedCodec::builder().max_frame_length(herdsman_proto::MAX_FRAME_BYTES).new_codec())
}

async fn dial(address: &str, purpose: Purpose) -> Framed<TcpStream, LengthDelimitedCodec> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let [a, b, c, d] = MAGIC;
    stream.write_all(&[a, b, c, d, purpose as u8]).await.unwrap();
    framed(stream)
}

/// A node in session, which answers bulk requests.
async fn node(cluster: &Cluster, answers: Answers) {
    let address = cluster.server.rpc_advertise();
    let mut control = dial(&address, Purpose::NodeControl).await;
    let mut row = node_row();
    row.secret_id = herdsman_model::SecretText("secret".into());
    let hello = Hello {
        version: SESSION_VERSION,
        node_json: serde_json::to_vec(&row).unwrap(),
        region: "global".into(),
        send_time: cluster.server.now(),
        ..Hello::default()
    };
    let frame = NodeFrame { message: Some(NodeMessage::Hello(hello)) };
    control.send(Bytes::from(frame.encode_to_vec())).await.unwrap();
    *cluster.agent.node.lock().unwrap() = Some(row.id);
    tokio::spawn(async move {
        while let Some(Ok(frame)) = control.next().await {
            if let Ok(ServerFrame { message: Some(ServerMessage::OpenBulk(open)) }) = ServerFrame::decode(frame) {
                tokio::spawn(bulk(address.clone(), open.token, Arc::clone(&answers)));
            }
        }
    });
    cluster.until("/v1/nodes", |a| a.json()[0]["Status"] == "ready").await;
}

async fn bulk(address: String, token: Vec<u8>, answers: Answers) {
    let mut channel = dial(&address, Purpose::NodeBulk).await;
    channel.send(Bytes::from(BulkHello { token }.encode_to_vec())).await.unwrap();
    let Some(Ok(frame)) = channel.next().await else { return };
    let Some(BulkMessage::Request(json)) = BulkFrame::decode(frame).unwrap().message else { return };
    let request: NodeRequest = serde_json::from_slice(&json).unwrap();
    let echoes = matches!(request, NodeRequest::Exec { .. } | NodeRequest::FsStream { .. });
    for message in answers(request) {
        let frame = BulkFrame { message: Some(message) };
        if channel.send(Bytes::from(frame.encode_to_vec())).await.is_err() {
            return;
        }
    }
    // A command gives back what it is fed, and ends when its input does.
    while echoes && let Some(Ok(frame)) = channel.next().await {
        let back = match BulkFrame::decode(frame).unwrap().message {
            Some(BulkMessage::Data(data)) => BulkMessage::Data(data),
            _ => break,
        };
        let close = matches!(&back, BulkMessage::Data(d) if d.starts_with(b"{\"stdin\":{\"close\""));
        let frame = BulkFrame { message: Some(back) };
        channel.send(Bytes::from(frame.encode_to_vec())).await.unwrap();
        if close {
            let frame = BulkFrame { message: Some(BulkMessage::End(BulkEnd {})) };
            channel.send(Bytes::from(frame.encode_to_vec())).await.unwrap();
            break;
        }
    }
}

fn data(text: &str) -> BulkMessage {
    BulkMessage::Data(text.as_bytes().to_vec())
}

fn end() -> BulkMessage {
    BulkMessage::End(BulkEnd {})
}

fn refuse(code: u32, message: &str) -> BulkMessage {
    BulkMessage::Error(BulkError { code, message: message.into() })
}

/// A cluster with a node in session that has one allocation.
async fn scene(answers: impl Fn(NodeRequest) -> Vec<BulkMessage> + Send + Sync + 'static) -> (Cluster, String) {
    let cluster = Cluster::start().await;
    node(&cluster, Arc::new(answers)).await;
    cluster.register(job("a")).await;
    let allocs = cluster.until("/v1/job/a/allocations", |a| a.json().as_array().is_some_and(|l| l.len() == 1)).await;
    let id = allocs.json()[0]["ID"].as_str().unwrap().to_string();
    (cluster, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_read_and_refused_as_the_node_says() {
    let (cluster, id) = scene(|request| match request {
        NodeRequest::FsList { path, .. } => vec![data(&format!("[{{\"Name\":{path:?}}}]")), end()],
        NodeRequest::FsStat { path, .. } => vec![refuse(404, &format!("open {path}: no such file or directory"))],
        NodeRequest::FsRead { path, .. } if path == "gone" => vec![refuse(404, "stat gone: no such file or directory")],
        NodeRequest::FsRead { path, .. } if path == "broken" => vec![data("half"), refuse(500, "disk failed")],
        NodeRequest::FsRead { offset, limit, .. } => vec![data("<html>"), data(&format!("{offset}/{limit}")), end()],
        other => vec![refuse(500, &format!("{other:?}"))],
    })
    .await;
    let list = cluster.get(&format!("/v1/client/fs/ls/{id}")).await;
    assert_eq!(list.json(), json!([{"Name": "/"}]));
    let stat = cluster.get(&format!("/v1/client/fs/stat/{id}?path=x")).await;
    assert_eq!((stat.status, stat.text().as_str()), (404, "open x: no such file or directory"));
    let unnamed = cluster.get(&format!("/v1/client/fs/stat/{id}")).await;
    assert_eq!((unnamed.status, unnamed.text().as_str()), (400, "must provide a file name"));
    // Pages are shown as text, in a sandbox.
    let cat = cluster.get(&format!("/v1/client/fs/cat/{id}?path=index.html")).await;
    assert_eq!((cat.status, cat.text().as_str()), (200, "<html>0/-1"));
    assert_eq!(cat.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(cat.header("content-security-policy").unwrap().contains("sandbox"));
    let part = cluster.get(&format!("/v1/client/fs/readat/{id}?path=x&offset=2&limit=3")).await;
    assert_eq!(part.text(), "<html>2/3");
    let unset = cluster.get(&format!("/v1/client/fs/readat/{id}?path=x")).await;
    assert_eq!(
        (unset.status, unset.text().as_str()),
        (200, "error parsing offset: strconv.ParseInt: parsing \"\": invalid syntax")
    );
    // What is wrong with a file is told in the body of a success.
    let gone = cluster.get(&format!("/v1/client/fs/cat/{id}?path=gone")).await;
    assert_eq!((gone.status, gone.text().as_str()), (200, "stat gone: no such file or directory"));
    // A file that breaks off is not taken for whole.
    let mut outcome = Ok(String::new());
    match Streamed::try_open(&cluster.api, &format!("/v1/client/fs/cat/{id}?path=broken")).await {
        Err(error) => outcome = Err(error),
        Ok(mut broken) => {
            while let Some(piece) = broken.next().await {
                outcome = piece;
            }
        }
    }
    assert!(outcome.is_err(), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_come_in_frames_or_plain() {
    let (cluster, id) = scene(|request| match request {
        NodeRequest::Logs { kind, origin, offset, .. } => {
            assert_eq!((kind.as_str(), origin.as_str(), offset), ("stdout", "end", 14));
            vec![
                data(r#"{"Data":"YQo=","File":"f","Offset":2}"#),
                data(r#"{"Data":"Ygo=","File":"f","Offset":4}"#),
                end(),
            ]
        }
        other => vec![refuse(500, &format!("{other:?}"))],
    })
    .await;
    let path = format!("/v1/client/fs/logs/{id}?task=task1&type=stdout&origin=end&offset=14");
    let frames = cluster.get(&path).await;
    assert_eq!(frames.text(), r#"{"Data":"YQo=","File":"f","Offset":2}{"Data":"Ygo=","File":"f","Offset":4}"#);
    let plain = cluster.get(&format!("{path}&plain=true")).await;
    assert_eq!((plain.text().as_str(), plain.header("content-type")), ("a\nb\n", Some("text/plain")));
    let refused = |query: &str| {
        let (path, cluster) = (format!("/v1/client/fs/logs/{id}?{query}"), &cluster);
        async move {
            let answer = cluster.get(&path).await;
            (answer.status, answer.text())
        }
    };
    let is = |text: &str| (400, text.to_string());
    assert_eq!(refused("task=task1&type=stdin").await, is("must provide log type (stdout/stderr)"));
    assert_eq!(refused("type=stdout").await, is("must provide task name"));
    assert_eq!(refused("task=ghost&type=stdout").await, is("unknown task name \"ghost\""));
    assert_eq!(refused("task=task1&type=stdout&origin=middle").await, is("origin must be start or end"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_signalled_restarted_and_measured() {
    let (cluster, id) = scene(|request| match request {
        NodeRequest::Signal { task, .. } if task == "ghost" => vec![refuse(500, "Task not found")],
        NodeRequest::Signal { signal, .. } => {
            assert_eq!(signal, "SIGUSR1");
            vec![end()]
        }
        NodeRequest::Restart { all_tasks, .. } => {
            assert!(all_tasks);
            vec![end()]
        }
        NodeRequest::AllocStats { task, .. } => vec![data(&json!({"Task": task}).to_string()), end()],
        NodeRequest::NodeStats => vec![data("{\"Uptime\":1}"), end()],
        NodeRequest::MetadataApply { meta } => vec![data(&json!({"Dynamic": meta}).to_string()), end()],
        NodeRequest::NodeGc => vec![end()],
        NodeRequest::AllocGc { .. } => {
            vec![refuse(500, "No such allocation on client, or allocation not eligible for GC")]
        }
        other => vec![refuse(500, &format!("{other:?}"))],
    })
    .await;
    let base = format!("/v1/client/allocation/{id}");
    let sent = cluster.put(&format!("{base}/signal"), json!({"Task": "task1", "Signal": "SIGUSR1"})).await;
    assert_eq!((sent.status, sent.json()), (200, json!({"Index": 0})));
    let ghost = cluster.put(&format!("{base}/signal"), json!({"Task": "ghost", "Signal": "SIGHUP"})).await;
    assert_eq!((ghost.status, ghost.text().as_str()), (500, "Task not found"));
    assert_eq!(cluster.put(&format!("{base}/restart"), json!({"AllTasks": true})).await.status, 200);
    assert_eq!(cluster.get(&format!("{base}/stats?task=task1")).await.json(), json!({"Task": "task1"}));
    assert_eq!(cluster.get("/v1/client/stats").await.json(), json!({"Uptime": 1}));
    let gc = cluster.get("/v1/client/gc").await;
    assert_eq!((gc.status, gc.text().as_str()), (200, ""));
    assert_eq!(cluster.get(&format!("{base}/gc")).await.status, 500);
    let applied =
        cluster.send("POST", "/v1/client/metadata", Some(json!({"Meta": {"a": "b", "c": null}}).to_string())).await;
    assert_eq!(applied.json(), json!({"Dynamic": {"a": "b", "c": null}}));
    let pause = cluster.get(&format!("{base}/pause?task=task1")).await;
    assert_eq!((pause.status, pause.text().as_str()), (500, "Enterprise only"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_out_of_session_cannot_be_asked() {
    let cluster = Cluster::with_node().await;
    let stats = cluster.get("/v1/client/stats").await;
    assert_eq!((stats.status, stats.text().as_str()), (404, "No path to node"));
}

async fn websocket(
    cluster: &Cluster,
    path: &str,
) -> WebSocketStream<hyper_util::rt::TokioIo<hyper::upgrade::Upgraded>> {
    let request = hyper::Request::builder()
        .uri(path)
        .header("host", "test")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = connect(&cluster.api).await.send_request(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 101);
    // The sample of RFC 6455, section 1.3.
    assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let upgraded = hyper::upgrade::on(response).await.unwrap();
    WebSocketStream::from_raw_socket(hyper_util::rt::TokioIo::new(upgraded), Role::Client, None).await
}

async fn next(socket: &mut WebSocketStream<hyper_util::rt::TokioIo<hyper::upgrade::Upgraded>>) -> Frame {
    tokio::time::timeout(EVENTUALLY, socket.next()).await.unwrap().unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_over_a_websocket() {
    let (cluster, id) = scene(|request| match request {
        NodeRequest::Exec { task, command, tty, .. } => {
            if task == "ghost" {
                return vec![refuse(500, "task not found")];
            }
            assert!(!tty);
            vec![data(&json!({"command": command}).to_string())]
        }
        other => vec![refuse(500, &format!("{other:?}"))],
    })
    .await;
    let base = format!("/v1/client/allocation/{id}/exec");
    let path = format!("{base}?task=task1&tty=false&command=%5B%22cat%22%5D&ws_handshake=true");
    let mut socket = websocket(&cluster, &path).await;
    socket.send(Frame::text("{\"version\":1,\"auth_token\":\"\"}")).await.unwrap();
    assert_eq!(next(&mut socket).await, Frame::text("{\"command\":[\"cat\"]}"));
    socket.send(Frame::text("{\"stdin\":{\"data\":\"YQ==\"}}")).await.unwrap();
    assert_eq!(next(&mut socket).await, Frame::text("{\"stdin\":{\"data\":\"YQ==\"}}"));
    socket.send(Frame::text("{\"stdin\":{\"close\":true}}")).await.unwrap();
    assert_eq!(next(&mut socket).await, Frame::text("{\"stdin\":{\"close\":true}}"));
    assert!(matches!(next(&mut socket).await, Frame::Close(None)));

    let closed = |path: String| {
        let cluster = &cluster;
        async move {
            let mut socket = websocket(cluster, &path).await;
            match next(&mut socket).await {
                Frame::Close(Some(frame)) => (u16::from(frame.code), frame.reason.to_string()),
                other => panic!("{other:?}"),
            }
        }
    };
    let is = |code: u16, reason: &str| (code, reason.to_string());
    assert_eq!(closed(format!("{base}?task=ghost&command=%5B%22x%22%5D")).await, is(1011, "task not found"));
    let missing = "failed to marshal command into json: unexpected end of JSON input";
    assert_eq!(closed(format!("{base}?task=task1")).await, is(1011, missing));
    let tty = "tty value is not a boolean: strconv.ParseBool: parsing \"maybe\": invalid syntax";
    assert_eq!(closed(format!("{base}?task=task1&tty=maybe&command=%5B%22x%22%5D")).await, is(1011, tty));
    let unknown = "/v1/client/allocation/00000000-0000-0000-0000-000000000001/exec?task=t&command=%5B%22x%22%5D";
    let text = "Unknown allocation \"00000000-0000-0000-0000-000000000001\"";
    assert_eq!(closed(unknown.to_string()).await, is(1008, text));
    let action = format!("/v1/job/a/action?task=task1&allocID={id}&action=ghost");
    assert_eq!(closed(action).await, is(1008, "action ghost not found in task task1"));
    let plain = cluster.get(&format!("{base}?task=task1&command=%5B%22x%22%5D")).await;
    assert_eq!((plain.status, plain.text().as_str()), (500, "websocket connection not found in context"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_waits_shows_that_it_lives() {
    let (cluster, id) = scene(|request| match request {
        // No end: the node waits for the file to grow.
        NodeRequest::FsStream { follow, .. } => {
            assert!(follow);
            vec![data(r#"{"Data":"YQ==","Offset":1}"#)]
        }
        other => vec![refuse(500, &format!("{other:?}"))],
    })
    .await;
    let mut stream = Streamed::open(&cluster.api, &format!("/v1/client/fs/stream/{id}?path=x")).await;
    let first: Value = serde_json::from_str(&stream.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(first["Offset"], 1);
    assert_eq!(stream.next().await.unwrap().unwrap(), "{}");
}
