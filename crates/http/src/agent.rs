//! What the API asks of the agent it belongs to.

use crate::error::HttpError;
use bytes::Bytes;
use futures::stream::BoxStream;
use herdsman_model::NodeId;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::Level;

/// What does not change while an agent runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentFacts {
    /// The name of this agent, without its region.
    pub name: String,
    pub region: String,
    pub datacenter: String,
    /// The version of the peer that this agent is compatible with.
    pub compatible_version: String,
    /// Our own version.
    pub version: String,
    /// Host and port that other servers are told for membership.
    pub gossip_host: String,
    pub gossip_port: u16,
    /// Profiles and facts of the host may be read without a token.
    pub debug: bool,
}

/// The agent that an API belongs to.
pub trait Agent: Send + Sync {
    /// What does not change.
    fn facts(&self) -> &AgentFacts;

    /// Whether metrics may be read in the text form of Prometheus.
    fn prometheus(&self) -> bool;

    /// Headers that the operator wants on every answer.
    fn response_headers(&self) -> Arc<[(String, String)]>;

    /// The configuration in force, as `GET /v1/agent/self` shows it, secrets left out.
    fn config(&self) -> Value;

    /// The node of this agent, if it runs one.
    fn node_id(&self) -> Option<NodeId>;

    /// Figures of the node for `GET /v1/agent/self`; none without a node.
    fn client_stats(&self) -> Option<BTreeMap<String, String>>;

    /// Whether the node of this agent works.
    ///
    /// # Errors
    /// What is wrong with it.
    fn client_health(&self) -> Result<(), String>;

    /// RPC addresses of the servers that the node of this agent talks to.
    fn servers(&self) -> Vec<String>;

    /// Replaces the servers that the node of this agent talks to.
    ///
    /// # Errors
    /// An address is none, or no server answers at any of them.
    fn set_servers(&self, servers: Vec<String>) -> Result<(), HttpError>;

    /// Reads the configuration again, as SIGHUP does.
    ///
    /// # Errors
    /// What is wrong with the configuration; the old one stays in force.
    fn reload(&self) -> Result<(), String>;

    /// Lines of the agent's log from now on, of this level and above, each with its newline; as JSON or as text.
    fn log(&self, level: Level, json: bool) -> BoxStream<'static, Bytes>;
}
