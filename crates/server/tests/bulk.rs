//! Requests to nodes over channels that they dial.

use crate::fake::{Cluster, Script};
use herdsman_model::NodeId;
use herdsman_proto::NodeRequest;

#[tokio::test(start_paused = true)]
async fn a_node_answers_over_a_channel_it_dials() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1, Script::Runs).await;
    let stream = cluster.server.node_request(node.id, &NodeRequest::NodeStats).await.unwrap();
    assert_eq!(stream.collect(1024).await.unwrap(), b"{\"CPU\":7}");
    let alloc_id = herdsman_model::AllocId([9; 16]);
    let refused = cluster.server.node_request(node.id, &NodeRequest::AllocChecks { alloc_id }).await.unwrap();
    let error = refused.collect(1024).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (404, "Unknown allocation"));
    let nobody = cluster.server.node_request(NodeId([9; 16]), &NodeRequest::NodeStats).await.unwrap_err();
    assert_eq!((nobody.code, nobody.message.as_str()), (404, "No path to node"));
}
