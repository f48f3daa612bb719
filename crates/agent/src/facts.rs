//! What the API shows of this agent.

use crate::config::settings::Settings;
use crate::log::Log;
use crate::reload::Reloader;
use crate::tune;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use herdsman_http::agent::{Agent as AgentView, AgentFacts};
use herdsman_http::error::HttpError;
use herdsman_model::NodeId;
use herdsman_node::{Node, Shared};
use herdsman_server::Server;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tracing::Level;

/// The version of the peer that this agent is compatible with.
pub const COMPATIBLE_VERSION: &str = "2.0.5";

/// The RPC port of a server that is named without one: the default, whatever port this agent itself uses.
pub const SERVER_PORT: u16 = 4647;

/// Our own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The agent as its API sees it.
pub struct Facts {
    facts: AgentFacts,
    live: RwLock<Live>,
    /// Addresses listened on, once they are known.
    addresses: Listening,
    log: Log,
    server: Option<Server>,
    node: RwLock<Option<NodeView>>,
    reloader: Reloader,
}

/// What a reload may change.
#[derive(Clone)]
struct Live {
    settings: Arc<Settings>,
    headers: Arc<[(String, String)]>,
}

impl Live {
    fn of(settings: Settings) -> Live {
        let headers = settings.response_headers.clone().into_iter().collect();
        Live { settings: Arc::new(settings), headers }
    }
}

/// The node of this agent, as far as the API asks.
#[derive(Clone)]
struct NodeView {
    id: NodeId,
    shared: Arc<Shared>,
    /// The server that a session is open with.
    connected: watch::Receiver<Option<String>>,
}

/// Addresses this agent listens on.
#[derive(Debug, Clone)]
pub struct Listening {
    pub http: Vec<SocketAddr>,
    /// None for an agent without a server.
    pub rpc: Option<SocketAddr>,
    /// What others are told.
    pub advertise_http: String,
    pub advertise_rpc: String,
}

impl Listening {
    /// Where the agent listens, as people write addresses.
    pub fn bound(&self) -> String {
        let http: Vec<String> = self.http.iter().map(SocketAddr::to_string).collect();
        let rpc = self.rpc.map(|rpc| format!("; RPC: {rpc}")).unwrap_or_default();
        format!("HTTP: [{}]{rpc}", http.join(", "))
    }
}

impl Facts {
    /// The facts of an agent that listens on these addresses.
    pub fn new(
        settings: Settings,
        name: &str,
        addresses: Listening,
        log: Log,
        server: Option<Server>,
        reloader: Reloader,
    ) -> Arc<Facts> {
        let host =
            host_of(&addresses.advertise_rpc).unwrap_or_else(|| host_of(&addresses.advertise_http).unwrap_or_default());
        let facts = AgentFacts {
            name: name.to_string(),
            region: settings.region.clone(),
            datacenter: settings.datacenter.clone(),
            compatible_version: COMPATIBLE_VERSION.to_string(),
            version: VERSION.to_string(),
            gossip_host: host,
            gossip_port: settings.ports.serf,
            debug: false,
        };
        let live = RwLock::new(Live::of(settings));
        Arc::new(Facts { facts, live, addresses, log, server, node: RwLock::new(None), reloader })
    }

    fn live(&self) -> Live {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.live().settings
    }

    fn apply(&self, settings: Settings) {
        self.log.restyle(&settings.log);
        if let (Some(server), Some(wanted)) = (&self.server, &settings.server) {
            server.retune(tune::server(wanted));
        }
        if let (Some(node), Some(wanted)) = (self.node(), &settings.client) {
            node.shared.retune(tune::node(wanted));
        }
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Live::of(settings);
    }

    /// Says that the node runs.
    pub fn set_node(&self, node: &Node) {
        // The configuration may have been read again while the node started.
        if let Some(wanted) = &self.settings().client {
            node.shared().retune(tune::node(wanted));
        }
        let view = NodeView { id: node.id(), shared: Arc::clone(node.shared()), connected: node.connected() };
        *self.node.write().unwrap_or_else(PoisonError::into_inner) = Some(view);
    }

    fn node(&self) -> Option<NodeView> {
        self.node.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn host_of(address: &str) -> Option<String> {
    let (host, _) = address.rsplit_once(':')?;
    Some(host.trim_start_matches('[').trim_end_matches(']').to_string())
}

impl AgentView for Facts {
    fn facts(&self) -> &AgentFacts {
        &self.facts
    }

    fn config(&self) -> Value {
        let s = &*self.settings();
        let host =
            |addresses: &[SocketAddr]| addresses.iter().map(|a| a.ip().to_string()).collect::<Vec<_>>().join(" ");
        let rpc: Vec<SocketAddr> = self.addresses.rpc.into_iter().collect();
        json!({
            "Region": s.region,
            "Datacenter": s.datacenter,
            "NodeName": self.facts.name,
            "DataDir": s.data_dir,
            "DevMode": s.dev,
            "LogLevel": s.log.level,
            "LogJson": s.log.json,
            "LogFile": s.log.file,
            "BindAddr": s.bind_addr,
            "Ports": {"HTTP": s.ports.http, "RPC": s.ports.rpc, "Serf": s.ports.serf},
            "Addresses": {"HTTP": host(&self.addresses.http), "RPC": host(&rpc), "Serf": host(&rpc)},
            "AdvertiseAddrs": {
                "HTTP": self.addresses.advertise_http,
                "RPC": self.addresses.advertise_rpc,
                "Serf": format!("{}:{}", self.facts.gossip_host, self.facts.gossip_port),
            },
            "LeaveOnInt": s.leave_on_interrupt,
            "LeaveOnTerm": s.leave_on_terminate,
            "HTTPAPIResponseHeaders": s.response_headers,
            "Server": s.server.as_ref().map(|server| json!({
                "Enabled": true,
                "BootstrapExpect": server.bootstrap_expect,
                "JobDefaultPriority": server.job_default_priority,
                "JobMaxPriority": server.job_max_priority,
                "JobMaxCount": server.job_max_count,
                "JobTrackedVersions": server.job_tracked_versions,
            })).unwrap_or_else(|| json!({"Enabled": false})),
            "Client": s.client.as_ref().map(|client| json!({
                "Enabled": true,
                "NodeClass": client.node_class,
                "NodePool": client.node_pool,
                "Meta": client.meta,
                "Options": client.options,
                "Servers": client.servers,
                "GCMaxAllocs": client.gc_max_allocs,
                "HostVolumes": client.host_volumes.iter().map(|v| json!({
                    "ID": "", "Name": v.name, "Path": v.path, "ReadOnly": v.read_only,
                })).collect::<Vec<_>>(),
            })).unwrap_or_else(|| json!({"Enabled": false})),
            "ACL": {"Enabled": false},
            "TLSConfig": {"EnableHTTP": false, "EnableRPC": false},
            "Telemetry": {"PrometheusMetrics": s.prometheus},
            "UI": {"Enabled": false},
            "Version": {
                "Version": COMPATIBLE_VERSION, "VersionPrerelease": "", "VersionMetadata": "", "Revision": "",
            },
        })
    }

    fn prometheus(&self) -> bool {
        self.settings().prometheus
    }

    fn response_headers(&self) -> Arc<[(String, String)]> {
        self.live().headers
    }

    fn node_id(&self) -> Option<NodeId> {
        self.node().map(|n| n.id)
    }

    fn client_stats(&self) -> Option<BTreeMap<String, String>> {
        self.node().map(|n| {
            BTreeMap::from([
                ("node_id".to_string(), n.id.to_string()),
                ("known_servers".to_string(), n.shared.servers().join(",")),
                ("num_allocations".to_string(), n.shared.count().to_string()),
                ("connected".to_string(), n.connected.borrow().is_some().to_string()),
            ])
        })
    }

    fn client_health(&self) -> Result<(), String> {
        match self.node() {
            Some(node) if node.connected.borrow().is_none() => Err("no session with a server is open".to_string()),
            _ => Ok(()),
        }
    }

    fn servers(&self) -> Vec<String> {
        match self.node() {
            Some(node) => node.shared.servers(),
            None if self.addresses.rpc.is_some() => vec![self.addresses.advertise_rpc.clone()],
            None => Vec::new(),
        }
    }

    fn set_servers(&self, servers: Vec<String>) -> Result<(), HttpError> {
        let Some(node) = self.node() else {
            return Err(HttpError::new(501, "this agent runs no node, so it has no servers to set"));
        };
        let servers: Vec<String> = servers.iter().map(|s| with_port(s, SERVER_PORT)).collect();
        node.shared.learn_servers(servers);
        Ok(())
    }

    fn reload(&self) -> Result<(), String> {
        self.reloader.reload(|settings| self.apply(settings))
    }

    fn log(&self, level: Level, json: bool) -> BoxStream<'static, Bytes> {
        let lines = self.log.watch();
        futures::stream::unfold(lines, move |mut lines| async move {
            loop {
                match lines.recv().await {
                    Ok(line) if line.level <= level => {
                        let text = if json { &line.json } else { &line.text };
                        return Some((Bytes::from(format!("{text}\n")), lines));
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(lost)) => {
                        return Some((Bytes::from(format!("    [{lost} lines were lost: read faster]\n")), lines));
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }
}

/// The address of a server with a port: the given one, or this.
pub fn with_port(address: &str, port: u16) -> String {
    let is_bare_v6 = address.parse::<IpAddr>().is_ok_and(|a| a.is_ipv6());
    if is_bare_v6 {
        return format!("[{address}]:{port}");
    }
    match address.rsplit_once(':') {
        Some((_, digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => address.to_string(),
        _ => format!("{}:{port}", address.trim_end_matches(':')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_may_leave_out_the_port() {
        assert_eq!(with_port("127.0.0.1", 4647), "127.0.0.1:4647");
        assert_eq!(with_port("127.0.0.1:9875", 4647), "127.0.0.1:9875");
        assert_eq!(with_port("::1", 4647), "[::1]:4647");
        assert_eq!(with_port("[::1]:5", 4647), "[::1]:5");
        assert_eq!(with_port("a.example", 4647), "a.example:4647");
    }

    #[test]
    fn addresses_are_written_plainly() {
        let mut listening = Listening {
            http: vec!["127.0.0.1:4646".parse().unwrap(), "[::1]:4646".parse().unwrap()],
            rpc: Some("127.0.0.1:4647".parse().unwrap()),
            advertise_http: String::new(),
            advertise_rpc: String::new(),
        };
        assert_eq!(listening.bound(), "HTTP: [127.0.0.1:4646, [::1]:4646]; RPC: 127.0.0.1:4647");
        listening.rpc = None;
        assert_eq!(listening.bound(), "HTTP: [127.0.0.1:4646, [::1]:4646]");
    }
}
