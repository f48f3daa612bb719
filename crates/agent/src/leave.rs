//! Leaving: stopping everything of a development agent, draining a node.

use crate::config::settings::DrainSettings;
use herdsman_client::{Client, Options, Query};
use herdsman_node::Node;
use herdsman_server::Server;
use herdsman_server::ops::DeregisterRequest;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How often it is looked whether everything has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Stops every job, waits until nothing runs on the node and removes what is left of its allocations; gives how many
/// still run.
pub async fn stop_everything(server: Option<&Server>, node: Option<&Node>, limit: Duration) -> usize {
    let (Some(server), Some(node)) = (server, node) else { return 0 };
    if !server.is_ready() {
        return node.active_allocs();
    }
    let snapshot = server.snapshot();
    for job in snapshot.jobs().filter(|j| !j.stop) {
        let request = DeregisterRequest {
            namespace: job.namespace.clone(),
            job_id: job.id.clone(),
            no_shutdown_delay: true,
            ..DeregisterRequest::default()
        };
        if let Err(error) = server.deregister_job(request).await {
            tracing::warn!(target: "agent", job = job.id, %error, "a job could not be stopped");
        }
    }
    let end = Instant::now() + limit;
    while node.active_allocs() > 0 && Instant::now() < end {
        tokio::time::sleep(LOOK).await;
    }
    while node.remove_ended().await > 0 && Instant::now() < end {
        tokio::time::sleep(LOOK).await;
    }
    node.active_allocs()
}

/// Drains the node as the configuration says and waits until nothing runs on it, or the deadline is over.
pub async fn drain(api: SocketAddr, node: &Node, settings: &DrainSettings) {
    let Ok(client) = Client::new(&format!("http://{api}"), Options::default()) else { return };
    let deadline = if settings.force { -1 } else { i64::try_from(settings.deadline.as_nanos()).unwrap_or(i64::MAX) };
    let body = json!({
        "NodeID": node.id(),
        "DrainSpec": {"Deadline": deadline, "IgnoreSystemJobs": settings.ignore_system_jobs},
        "MarkEligible": false,
        "Meta": {"message": "shutting down"},
    });
    tracing::info!(target: "agent", deadline = ?settings.deadline, "draining the node before the agent ends");
    let path = format!("/v1/node/{}/drain", node.id());
    if let Err(error) = client.put::<_, Value>(&path, &Query::none(), &body).await {
        tracing::error!(target: "agent", %error, "the node could not be drained");
        return;
    }
    let end = Instant::now() + settings.deadline;
    while node.active_allocs() > 0 && Instant::now() < end {
        tokio::time::sleep(LOOK).await;
    }
}
