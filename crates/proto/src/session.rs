//! The node session: one control stream of small messages that the node dials and the server pushes on.
//!
//! The node opens with [`Hello`], the server answers [`Welcome`] and then pushes [`Work`] whenever what the node should
//! run changes. The node sends [`AllocUpdates`] as states change, keeping each until it is acknowledged.

use herdsman_model::{
    AllocId, AllocStateChange, ClientStatus, DeploymentStatus, Name, NetworkStatus, Outcome, TaskState,
};
use prost::Message;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a node sends.
#[derive(Clone, PartialEq, Message)]
pub struct NodeFrame {
    #[prost(oneof = "NodeMessage", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub message: Option<NodeMessage>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum NodeMessage {
    #[prost(message, tag = "1")]
    Hello(Hello),
    #[prost(message, tag = "2")]
    Heartbeat(Heartbeat),
    #[prost(message, tag = "3")]
    NodeChanged(NodeChanged),
    #[prost(message, tag = "4")]
    AllocUpdates(AllocUpdates),
    #[prost(message, tag = "5")]
    Services(ServiceChanges),
    #[prost(message, tag = "6")]
    Leaving(Leaving),
    #[prost(message, tag = "7")]
    NodeEvent(NodeEventNote),
}

/// Opens a session.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// `model::Node` as the node knows itself: fingerprint, drivers, secret.
    #[prost(bytes = "vec", tag = "2")]
    pub node_json: Vec<u8>,
    /// Allocations the node already has, so that only the difference is sent.
    #[prost(message, repeated, tag = "3")]
    pub known: Vec<KnownAlloc>,
    #[prost(string, tag = "4")]
    pub region: String,
    /// The node's time when it sent this, nanoseconds since the Unix epoch.
    #[prost(int64, tag = "5")]
    pub send_time: i64,
}

/// An allocation a node has, and the server-side change it last saw of it.
#[derive(Clone, PartialEq, Message)]
pub struct KnownAlloc {
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub alloc_modify_index: u64,
}

/// Says that the node lives.
#[derive(Clone, PartialEq, Message)]
pub struct Heartbeat {
    #[prost(int64, tag = "1")]
    pub send_time: i64,
}

/// The node's fingerprint, meta or drivers changed.
#[derive(Clone, PartialEq, Message)]
pub struct NodeChanged {
    #[prost(bytes = "vec", tag = "1")]
    pub node_json: Vec<u8>,
}

/// States that changed. `sequence` rises by one per message within a session; the server acknowledges it once the
/// states are in the log.
#[derive(Clone, PartialEq, Message)]
pub struct AllocUpdates {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Each a JSON [`AllocUpdate`].
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub updates_json: Vec<Vec<u8>>,
}

/// Services of the native provider that came or went on this node.
#[derive(Clone, PartialEq, Message)]
pub struct ServiceChanges {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Each a JSON [`ServiceRegistration`].
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub register_json: Vec<Vec<u8>>,
    /// Ids of registrations.
    #[prost(string, repeated, tag = "3")]
    pub deregister: Vec<String>,
}

/// The agent is about to end on purpose; its tasks go on.
#[derive(Clone, PartialEq, Message)]
pub struct Leaving {}

/// Something that happened to the node, for its list of events.
#[derive(Clone, PartialEq, Message)]
pub struct NodeEventNote {
    /// `model::NodeEvent`.
    #[prost(bytes = "vec", tag = "1")]
    pub event_json: Vec<u8>,
}

/// What a server sends.
#[derive(Clone, PartialEq, Message)]
pub struct ServerFrame {
    #[prost(oneof = "ServerMessage", tags = "1, 2, 3, 4, 5, 6")]
    pub message: Option<ServerMessage>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ServerMessage {
    #[prost(message, tag = "1")]
    Welcome(Welcome),
    #[prost(message, tag = "2")]
    Refused(Refused),
    #[prost(message, tag = "3")]
    HeartbeatAck(HeartbeatAck),
    #[prost(message, tag = "4")]
    Work(Work),
    #[prost(message, tag = "5")]
    Ack(Ack),
    #[prost(message, tag = "6")]
    OpenBulk(OpenBulk),
}

/// The session is open.
#[derive(Clone, PartialEq, Message)]
pub struct Welcome {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The node must be heard again within this time, nanoseconds.
    #[prost(int64, tag = "2")]
    pub heartbeat_ttl: i64,
    /// RPC addresses of all servers.
    #[prost(string, repeated, tag = "3")]
    pub servers: Vec<String>,
}

/// The session cannot be opened; the node shows the message and tries another server, or later.
#[derive(Clone, PartialEq, Message)]
pub struct Refused {
    #[prost(string, tag = "1")]
    pub message: String,
    /// Trying again cannot help (wrong secret, wrong version).
    #[prost(bool, tag = "2")]
    pub permanent: bool,
}

/// The leader has counted a heartbeat in its own term.
#[derive(Clone, PartialEq, Message)]
pub struct HeartbeatAck {
    /// The send time of the heartbeat.
    #[prost(int64, tag = "1")]
    pub send_time: i64,
    #[prost(int64, tag = "2")]
    pub heartbeat_ttl: i64,
}

/// What the node should run, as the difference to what it was last sent.
#[derive(Clone, PartialEq, Message)]
pub struct Work {
    /// Index of `state` that this brings the node up to.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// Jobs not yet sent in this session that the allocations below refer to: JSON `model::Job`.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub jobs_json: Vec<Vec<u8>>,
    /// New or changed allocations: JSON `model::Allocation` without task states.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub allocs_json: Vec<Vec<u8>>,
    /// Allocations the servers no longer know: the node may destroy them once they are terminal.
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub removed: Vec<Vec<u8>>,
    /// The first message of a session: `allocs_json` and what the node said it knows are all there is.
    #[prost(bool, tag = "5")]
    pub complete: bool,
}

/// The states of this message are in the log.
#[derive(Clone, PartialEq, Message)]
pub struct Ack {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Empty, or why the states were refused (the node keeps them and goes on).
    #[prost(string, tag = "2")]
    pub error: String,
}

/// Asks the node to dial a bulk channel for one request.
#[derive(Clone, PartialEq, Message)]
pub struct OpenBulk {
    /// Names the channel; random, so that nobody else can take it.
    #[prost(bytes = "vec", tag = "1")]
    pub token: Vec<u8>,
}

/// What a node says of one allocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocUpdate {
    pub id: AllocId,
    pub client_status: ClientStatus,
    pub client_description: String,
    pub outcome: Option<Outcome>,
    pub task_states: BTreeMap<Name, TaskState>,
    pub state_changes: Vec<AllocStateChange>,
    pub deployment_status: Option<DeploymentStatus>,
    pub network_status: Option<NetworkStatus>,
}

/// A service of the native provider, registered for an allocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceRegistration {
    pub id: String,
    pub service_name: String,
    pub namespace: Name,
    pub node_id: herdsman_model::NodeId,
    pub datacenter: String,
    pub job_id: Name,
    pub alloc_id: AllocId,
    pub tags: Vec<String>,
    pub address: String,
    pub port: i64,
    pub create_index: u64,
    pub modify_index: u64,
}
