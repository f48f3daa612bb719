//! Agents without a server, and no server at all.

use crate::support::{Cluster, TestAgent, job, request, world};
use herdsman_http::{Agent, Api};
use serde_json::json;
use std::sync::Arc;

/// The API of an agent without a server, which knows these.
fn client_only(servers: Vec<String>) -> Arc<Api> {
    let agent = TestAgent::new();
    *agent.servers.lock().unwrap() = servers;
    Api::new(None, Arc::new(agent) as Arc<dyn Agent>, world(9), Vec::new())
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
