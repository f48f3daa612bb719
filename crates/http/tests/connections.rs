//! Agents without a server, and no server at all.

use crate::support::{Cluster, TestAgent, job, request, world};
use herdsman_http::{Agent, Api};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The API of an agent without a server, which knows these.
fn client_only(servers: Vec<String>) -> Arc<Api> {
    let agent = TestAgent::new();
    *agent.servers.lock().unwrap() = servers;
    Api::new(None, Arc::new(agent) as Arc<dyn Agent>, world(9))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_forwarded_to_a_server() {
    let cluster = Cluster::start().await;
    let api = Arc::clone(&cluster.api);
    cluster.server.on_forward(move |stream| {
        tokio::spawn(herdsman_http::serve::serve_stream(Arc::clone(&api), stream));
    });
    // The first server named is none: the next is tried.
    let client = client_only(vec!["127.0.0.1:1".into(), cluster.server.rpc_advertise()]);
    let body = json!({"Job": job("far")}).to_string();
    let made = request(&client, "PUT", "/v1/jobs", Some(body)).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let read = request(&client, "GET", "/v1/job/far?pretty", None).await;
    assert_eq!((read.status, read.json()["ID"].as_str()), (200, Some("far")));
    assert_eq!(read.index(), cluster.get("/v1/job/far").await.index());
    let missing = request(&client, "GET", "/v1/job/none", None).await;
    assert_eq!((missing.status, missing.text().as_str()), (404, "job not found"));
    // What is about the agent itself stays here.
    let own = request(&client, "GET", "/v1/agent/health?type=server", None).await;
    assert_eq!(own.status, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_the_reason_is_told() {
    let none = request(&client_only(Vec::new()), "GET", "/v1/jobs", None).await;
    assert!(none.status == 500 && none.text().starts_with("No known servers"), "{}", none.text());
    let dead = request(&client_only(vec!["127.0.0.1:1".into()]), "GET", "/v1/jobs", None).await;
    assert!(dead.text().starts_with("no server can be reached: 127.0.0.1:1: "), "{}", dead.text());
    let parsed = json!({"JobHCL": "job \"v\" {}\n"}).to_string();
    assert_eq!(request(&client_only(Vec::new()), "POST", "/v1/jobs/parse", Some(parsed)).await.status, 200);
}

/// What comes back on a connection on which this was sent, in pieces with a pause before each.
async fn slowly(pieces: &[(u64, &str)]) -> String {
    let (mut client, server) = tokio::io::duplex(4096);
    let serving = tokio::spawn(herdsman_http::serve::serve_stream(client_only(Vec::new()), server));
    for (pause, piece) in pieces {
        tokio::time::sleep(Duration::from_secs(*pause)).await;
        // An answer may have come, and the connection gone, before all is sent.
        let _ = client.write_all(piece.as_bytes()).await;
    }
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    serving.await.unwrap();
    answer
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_go_on_is_let_go() {
    const HEAD: &str = "POST /v1/jobs/parse HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
    let stalled = slowly(&[(0, HEAD), (1, "{")]).await;
    assert!(stalled.starts_with("HTTP/1.1 408 "), "{stalled}");
    assert!(stalled.ends_with("nothing more of the body came within 30 s; send it again"), "{stalled}");
    let mut drops = vec![(0, HEAD)];
    drops.extend([(20, " "); 20]);
    let dripping = slowly(&drops).await;
    assert!(dripping.ends_with("the body was not there within 300 s; send it again"), "{dripping}");
    assert_eq!(slowly(&[(0, "GET /v1/jobs HTT")]).await, "");
    // Slow, and within the limits.
    let whole = "POST /v1/jobs/parse HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n";
    let slow = slowly(&[(20, whole), (25, "{"), (25, "}")]).await;
    assert!(slow.starts_with("HTTP/1.1 400 "), "{slow}");
}
