//! A small HTTP server that gives recorded answers.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One answer.
#[derive(Clone, Debug)]
pub struct Answer {
    method: String,
    path: String,
    status: u16,
    index: Option<String>,
    body: String,
}

/// Both methods of writing are one.
fn method_of(text: &str) -> String {
    if text == "POST" { "PUT".to_string() } else { text.to_string() }
}

impl Answer {
    /// A recorded answer, by its number.
    pub fn recorded(folder: &Path, number: &str) -> Answer {
        let file = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .find(|p| p.file_name().unwrap().to_string_lossy().starts_with(&format!("{number}-")))
            .unwrap_or_else(|| panic!("there is no recorded answer {number}"));
        let record: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let path = record["request"]["path"].as_str().unwrap();
        let body = match record.get("body") {
            Some(body) => body.to_string(),
            None => record["body_text"].as_str().unwrap_or_default().to_string(),
        };
        Answer {
            method: method_of(record["request"]["method"].as_str().unwrap()),
            path: path.split('?').next().unwrap().to_string(),
            status: u16::try_from(record["status"].as_u64().unwrap()).unwrap(),
            index: record["headers"]["X-Nomad-Index"].as_str().map(str::to_string),
            body,
        }
    }

    /// `METHOD PATH STATUS INDEX BODY`.
    pub fn written(line: &str) -> Answer {
        let mut parts = line.splitn(5, ' ');
        let mut next = || parts.next().unwrap_or_else(|| panic!("an answer needs five parts: {line}")).to_string();
        let (method, path, status, index, body) = (next(), next(), next(), next(), next());
        Answer { method: method_of(&method), path, status: status.parse().unwrap(), index: Some(index), body }
    }
}

pub struct Server {
    pub address: String,
}

type Script = Arc<Mutex<BTreeMap<(String, String), Vec<Answer>>>>;

/// Starts a server for these answers.
pub async fn start(answers: Vec<Answer>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut script: BTreeMap<(String, String), Vec<Answer>> = BTreeMap::new();
    for answer in answers {
        script.entry((answer.method.clone(), answer.path.clone())).or_default().push(answer);
    }
    let script: Script = Arc::new(Mutex::new(script));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&script)));
        }
    });
    Server { address }
}

/// An exec session: what comes in goes out on standard output, its end to standard error; the exit status is 7.
async fn exec(stream: TcpStream) {
    use futures::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;
    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(text.as_str()).unwrap();
        if let Some(data) = frame["stdin"]["data"].as_str().filter(|d| !d.is_empty()) {
            let answer = serde_json::json!({"stdout": {"data": data}}).to_string();
            socket.send(Message::text(answer)).await.unwrap();
        }
        if frame["stdin"]["close"] == true {
            let answer = serde_json::json!({"stderr": {"data": "ZW5kCg=="}}).to_string();
            socket.send(Message::text(answer)).await.unwrap();
            let answer = serde_json::json!({"exited": true, "result": {"exit_code": 7}}).to_string();
            socket.send(Message::text(answer)).await.unwrap();
        }
    }
}

/// Whether a connection begins with a request for an exec session.
async fn wants_exec(stream: &TcpStream) -> bool {
    let mut head = [0; 512];
    let count = stream.peek(&mut head).await.unwrap_or(0);
    let text = String::from_utf8_lossy(&head[..count]).into_owned();
    text.lines().next().is_some_and(|line| line.contains("/exec?"))
}

async fn serve(mut stream: TcpStream, script: Script) {
    if wants_exec(&stream).await {
        return exec(stream).await;
    }
    let mut held = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = held.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            let mut piece = [0; 4096];
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(count) => held.extend_from_slice(&piece[..count]),
            }
        };
        let head = String::from_utf8_lossy(&held[..end]).into_owned();
        held.drain(..end);
        let length: usize = head
            .lines()
            .filter_map(|l| l.split_once(": "))
            .find(|(n, _)| n.eq_ignore_ascii_case("content-length"))
            .map_or(0, |(_, v)| v.parse().unwrap());
        while held.len() < length {
            let mut piece = [0; 4096];
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(count) => held.extend_from_slice(&piece[..count]),
            }
        }
        held.drain(..length);
        let mut line = head.lines().next().unwrap().split(' ');
        let (method, target) = (line.next().unwrap(), line.next().unwrap());
        let answer = answer(&script, method, target);
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(script: &Script, method: &str, target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut script = script.lock().unwrap();
    let found = script
        .get_mut(&(method_of(method), path.to_string()))
        .map(|list| if list.len() > 1 { list.remove(0) } else { list[0].clone() });
    let Some(found) = found else {
        let body = format!("nothing is recorded for {method} {target}");
        return format!("HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    };
    let prefix = query.split('&').find_map(|p| p.strip_prefix("prefix="));
    let body = match (prefix, serde_json::from_str::<Value>(&found.body)) {
        (Some(prefix), Ok(Value::Array(all))) => {
            let prefix = prefix.replace("%2F", "/");
            let starts = |v: &Value| {
                let key = v.get("ID").or_else(|| v.get("Name")).and_then(Value::as_str).unwrap_or_default();
                key.starts_with(&prefix)
            };
            Value::Array(all.into_iter().filter(starts).collect()).to_string()
        }
        _ => found.body,
    };
    let index = found.index.map(|i| format!("X-Nomad-Index: {i}\r\n")).unwrap_or_default();
    format!("HTTP/1.1 {} X\r\n{index}Content-Length: {}\r\n\r\n{body}", found.status, body.len())
}
