//! Requests to nodes over channels that they dial.

use crate::fake::{Cluster, Script, dial};
use futures::{SinkExt, StreamExt};
use herdsman_model::NodeId;
use herdsman_proto::{BulkEnd, BulkError, BulkFrame, BulkHello, BulkMessage, NodeRequest, Purpose};
use herdsman_world::World;
use prost::Message;
use std::net::SocketAddr;

/// What the fake node answers: its statistics in two parts, an error for the rest.
pub async fn serve(world: World, addr: SocketAddr, token: Vec<u8>) {
    let mut frames = dial(&world, addr, Purpose::NodeBulk).await;
    frames.send(bytes::Bytes::from(BulkHello { token }.encode_to_vec())).await.unwrap();
    let frame = BulkFrame::decode(frames.next().await.unwrap().unwrap()).unwrap();
    let Some(BulkMessage::Request(json)) = frame.message else { panic!("no request") };
    let answers = match serde_json::from_slice(&json).unwrap() {
        NodeRequest::NodeStats => vec![
            BulkMessage::Data(b"{\"CPU\":".to_vec()),
            BulkMessage::Data(b"7}".to_vec()),
            BulkMessage::End(BulkEnd {}),
        ],
        _ => vec![BulkMessage::Error(BulkError { code: 404, message: "Unknown allocation".into() })],
    };
    for message in answers {
        let frame = BulkFrame { message: Some(message) };
        frames.send(bytes::Bytes::from(frame.encode_to_vec())).await.unwrap();
    }
}

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
