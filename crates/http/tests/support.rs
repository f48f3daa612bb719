//! A server with its API in this process, and a client.

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use herdsman_http::{Agent, AgentFacts, Api, HttpError};
use herdsman_model::{DriverInfo, Name, NetworkResource, Node, NodeAddress, NodeId, NodeNetwork, SecretText};
use herdsman_server::{Server, ServerConfig};
use herdsman_state::{Body, UpsertNode};
use herdsman_world::{RealClock, RealNet, SeededRng, SimDisk, World};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::Level;

/// How long anything may take that surely comes.
pub const EVENTUALLY: Duration = Duration::from_secs(30);

pub struct TestAgent {
    pub facts: AgentFacts,
    pub node: Mutex<Option<NodeId>>,
    pub servers: Mutex<Vec<String>>,
}

impl TestAgent {
    pub fn new() -> TestAgent {
        let facts = AgentFacts {
            name: "golden-1".into(),
            region: "global".into(),
            datacenter: "dc1".into(),
            compatible_version: "2.0.5".into(),
            version: "0.1.0".into(),
            gossip_host: "127.0.0.1".into(),
            gossip_port: 8648,
            debug: false,
        };
        TestAgent { facts, node: Mutex::new(None), servers: Mutex::new(Vec::new()) }
    }
}

impl Agent for TestAgent {
    fn facts(&self) -> &AgentFacts {
        &self.facts
    }
    fn config(&self) -> Value {
        json!({"Region": "global", "Datacenter": "dc1", "NodeName": "golden-1"})
    }
    fn node_id(&self) -> Option<NodeId> {
        *self.node.lock().unwrap()
    }
    fn client_stats(&self) -> Option<BTreeMap<String, String>> {
        self.node_id().map(|id| BTreeMap::from([("node_id".to_string(), id.to_string())]))
    }
    fn client_health(&self) -> Result<(), String> {
        Ok(())
    }
    fn servers(&self) -> Vec<String> {
        self.servers.lock().unwrap().clone()
    }
    fn set_servers(&self, servers: Vec<String>) -> Result<(), HttpError> {
        *self.servers.lock().unwrap() = servers;
        Ok(())
    }
    fn prometheus(&self) -> bool {
        true
    }
    fn response_headers(&self) -> Arc<[(String, String)]> {
        Arc::default()
    }
    fn reload(&self) -> Result<(), String> {
        Ok(())
    }
    fn log(&self, _: Level, json: bool) -> BoxStream<'static, Bytes> {
        let line: &[u8] = if json { b"{\"@level\":\"debug\"}\n" } else { b"    [DEBUG] http: hello\n" };
        Box::pin(futures::stream::iter([Bytes::from_static(line)]).chain(futures::stream::pending()))
    }
}

/// An answer, whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Bytes,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e} in {}: {}", self.status, self.text()))
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
    pub fn index(&self) -> u64 {
        self.header("x-nomad-index").unwrap_or("0").parse().unwrap()
    }
}

pub struct Cluster {
    pub server: Server,
    pub agent: Arc<TestAgent>,
    pub api: Arc<Api>,
}

pub fn world(seed: u64) -> World {
    World {
        clock: Arc::new(RealClock::new()),
        rng: Arc::new(SeededRng::from_seed(seed)),
        disk: Arc::new(SimDisk::new(seed)),
        net: Arc::new(RealNet),
    }
}

impl Cluster {
    /// One server that leads, on a disk in memory.
    pub async fn start() -> Cluster {
        let world = world(1);
        let consensus = herdsman_consensus::Config::single(1, "/raft");
        let config = ServerConfig::single(consensus, "127.0.0.1:0".parse().unwrap());
        let server = Server::start(config, world.clone()).await.unwrap();
        server.ready().await;
        let agent = Arc::new(TestAgent::new());
        let api = Api::new(Some(server.clone()), Arc::clone(&agent) as Arc<dyn Agent>, world);
        Cluster { server, agent, api }
    }

    /// As [`Cluster::start`], with one node that answers nothing.
    pub async fn with_node() -> Cluster {
        let cluster = Cluster::start().await;
        let node = node_row();
        *cluster.agent.node.lock().unwrap() = Some(node.id);
        let command = UpsertNode { node, ready: true, ..UpsertNode::default() };
        cluster.server.propose(Body::UpsertNode(Box::new(command))).await.unwrap();
        cluster
    }

    pub async fn get(&self, path: &str) -> Answer {
        request(&self.api, "GET", path, None).await
    }
    pub async fn put(&self, path: &str, body: Value) -> Answer {
        request(&self.api, "PUT", path, Some(body.to_string())).await
    }
    pub async fn send(&self, method: &str, path: &str, body: Option<String>) -> Answer {
        request(&self.api, method, path, body).await
    }

    /// Asks again until the answer is as wanted.
    pub async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let ask = async {
            loop {
                let answer = self.get(path).await;
                if wanted(&answer) {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(EVENTUALLY, ask).await {
            Ok(answer) => answer,
            Err(_) => panic!("{path} never answered as wanted: {}", self.get(path).await.text()),
        }
    }
}

pub fn node_row() -> Node {
    let driver = DriverInfo { detected: true, healthy: true, ..DriverInfo::default() };
    let attributes = [
        ("kernel.name", "linux"),
        ("driver.raw_exec", "1"),
        ("nomad.version", "2.0.5"),
        ("nomad.service_discovery", "true"),
        ("os.signals", "SIGHUP,SIGKILL,SIGUSR1"),
    ];
    let mut node = Node {
        secret_id: SecretText::default(),
        name: Name::from("golden-1"),
        node_class: "compute".into(),
        drivers: [("raw_exec".to_owned(), driver)].into(),
        attributes: attributes.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        ..herdsman_sim::node::row(0x6d)
    };
    let network = |mode: &str| NetworkResource {
        mode: mode.into(),
        device: "lo".into(),
        ip: "127.0.0.1".into(),
        cidr: "127.0.0.1/32".into(),
        ..NetworkResource::default()
    };
    node.resources.networks = vec![network("host")].into();
    let address = NodeAddress {
        family: "ipv4".into(),
        alias: "default".into(),
        address: "127.0.0.1".into(),
        ..NodeAddress::default()
    };
    node.resources.node_networks = vec![NodeNetwork {
        mode: "host".into(),
        device: "lo".into(),
        addresses: vec![address].into(),
        ..NodeNetwork::default()
    }];
    node
}

/// A connection to an API, for one request or many.
pub async fn connect(api: &Arc<Api>) -> hyper::client::conn::http1::SendRequest<Full<Bytes>> {
    let (here, there) = tokio::io::duplex(64 * 1024);
    tokio::spawn(herdsman_http::serve::serve_stream(Arc::clone(api), there));
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(here)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

pub async fn send(api: &Arc<Api>, request: hyper::Request<Full<Bytes>>) -> Answer {
    let response = connect(api).await.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().iter().map(|(k, v)| (k.to_string(), v.to_str().unwrap().to_string())).collect();
    let body = tokio::time::timeout(EVENTUALLY, response.into_body().collect()).await.unwrap().unwrap().to_bytes();
    Answer { status, headers, body }
}

pub async fn request(api: &Arc<Api>, method: &str, path: &str, body: Option<String>) -> Answer {
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "test")
        .body(Full::new(Bytes::from(body.unwrap_or_default())))
        .unwrap();
    send(api, request).await
}

/// The pieces of a streamed answer, one after another.
pub struct Streamed {
    body: hyper::body::Incoming,
    pub status: u16,
}

impl Streamed {
    pub async fn open(api: &Arc<Api>, path: &str) -> Streamed {
        Streamed::try_open(api, path).await.unwrap()
    }

    /// As [`Streamed::open`]; an error if the connection broke off before there was an answer.
    pub async fn try_open(api: &Arc<Api>, path: &str) -> Result<Streamed, hyper::Error> {
        let request = hyper::Request::builder().uri(path).header("host", "test").body(Full::new(Bytes::new())).unwrap();
        let response = connect(api).await.send_request(request).await?;
        Ok(Streamed { status: response.status().as_u16(), body: response.into_body() })
    }
    /// The next piece; none at the end; an error if the stream broke off.
    pub async fn next(&mut self) -> Option<Result<String, hyper::Error>> {
        let frame = tokio::time::timeout(EVENTUALLY, self.body.frame()).await.expect("a piece in time")?;
        Some(frame.map(|f| String::from_utf8(f.into_data().unwrap().to_vec()).unwrap()))
    }
}

pub fn goldens() -> PathBuf {
    let root = std::env::var_os("HERDSMAN_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let dir = root.join("compat/goldens/api");
    assert!(
        dir.is_dir(),
        "no recorded answers at {}: set HERDSMAN_SHARED to the folder that holds compat/",
        dir.display()
    );
    dir
}

/// A recorded call, by the beginning of its file's name.
pub fn golden(number: &str) -> Value {
    let dir = goldens();
    let prefix = format!("{number}-");
    let entry = std::fs::read_dir(&dir)
        .unwrap()
        .filter_map(Result::ok)
        .find(|e| e.file_name().to_string_lossy().starts_with(&prefix))
        .unwrap_or_else(|| panic!("no recorded call {number} in {}", dir.display()));
    serde_json::from_slice(&std::fs::read(entry.path()).unwrap()).unwrap()
}

/// A small job that the test's node can run.
pub fn job(id: &str) -> Value {
    json!({
        "ID": id, "Name": id, "Type": "batch", "Datacenters": ["dc1"], "Priority": 50,
        "TaskGroups": [{
            "Name": "group1", "Count": 1,
            "Tasks": [{
                "Name": "task1", "Driver": "raw_exec", "Config": {"command": "/bin/sleep"},
                "Resources": {"CPU": 100, "MemoryMB": 256},
            }],
        }],
    })
}

impl Cluster {
    pub async fn register(&self, job: Value) -> Value {
        let answer = self.put("/v1/jobs", json!({"Job": job})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}
