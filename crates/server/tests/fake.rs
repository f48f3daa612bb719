//! A server on a simulated network, with simulated nodes.

use herdsman_model::{ClientStatus, Node};
use herdsman_server::ops::{JobChanged, RegisterRequest};
use herdsman_server::{Server, ServerConfig};
pub use herdsman_sim::node::{Script, SimNode, row as node_row};
pub use herdsman_sim::session::{hear, hello, say};
use herdsman_world::{Simulation, World};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub const SERVER_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// A server, its simulated cluster, and how to add nodes to it.
pub struct Cluster {
    pub sim: Simulation,
    pub world: World,
    pub server: Server,
}

pub fn config() -> ServerConfig {
    let consensus = herdsman_consensus::Config::single(1, "/server");
    let mut config = ServerConfig::single(consensus, SocketAddr::new(SERVER_IP, 4647));
    config.schedulers = 2;
    config
}

impl Cluster {
    pub async fn start(seed: u64) -> Cluster {
        Cluster::start_with(seed, config()).await
    }

    pub async fn start_with(seed: u64, config: ServerConfig) -> Cluster {
        let sim = Simulation::new(seed);
        let world = sim.world(SERVER_IP);
        let server = Server::start(config, world.clone()).await.unwrap();
        server.ready().await;
        Cluster { sim, world, server }
    }

    /// Stops the server and starts another on the same disk.
    pub async fn restart(self) -> Cluster {
        self.server.shutdown().await;
        drop(self.server);
        let world = self.sim.world_with_disk(SERVER_IP, Arc::clone(&self.world.disk), 1);
        let server = Server::start(config(), world.clone()).await.unwrap();
        server.ready().await;
        Cluster { sim: self.sim, world, server }
    }

    pub async fn node(&self, n: u8, script: Script) -> SimNode {
        self.node_with(node_row(n), n, script).await
    }

    pub async fn node_with(&self, row: Node, n: u8, script: Script) -> SimNode {
        let world = self.sim.world(IpAddr::V4(Ipv4Addr::new(10, 0, 1, n)));
        SimNode::join(world, self.server.rpc_addr(), row, script).await.unwrap()
    }

    pub async fn register(&self, job: Value) -> JobChanged {
        self.server.register_job(RegisterRequest { job, ..RegisterRequest::default() }).await.unwrap()
    }

    /// Waits, in simulated time, until something holds.
    pub async fn until(&self, what: &str, holds: impl Fn(&herdsman_state::Snapshot) -> bool) {
        for _ in 0..6000 {
            if holds(&self.server.snapshot()) {
                return;
            }
            self.world.clock.sleep(Duration::from_millis(100)).await;
        }
        let snapshot = self.server.snapshot();
        for alloc in snapshot.allocs() {
            eprintln!(
                "{} on {} {} {} {}",
                alloc.name, alloc.node_name, alloc.desired_status, alloc.client_status, alloc.desired_description
            );
        }
        for eval in snapshot.evals() {
            eprintln!(
                "{:?} {} {:?} {:?} {:?}",
                eval.triggered_by, eval.job_id, eval.status, eval.status_description, eval.failed_groups
            );
        }
        for deployment in snapshot.deployments() {
            eprintln!("{deployment:?}");
        }
        panic!("never came true: {what}");
    }
}

pub fn count(snapshot: &herdsman_state::Snapshot, job: &str, status: ClientStatus) -> usize {
    let key = herdsman_state::JobKey::new("default", job);
    snapshot.allocs_by_job(&key).filter(|alloc| alloc.client_status == status && !alloc.server_terminal()).count()
}

/// A job in submitted form.
pub fn job(id: &str, kind: &str, count: i64) -> Value {
    json!({
        "ID": id,
        "Name": id,
        "Type": kind,
        "TaskGroups": [{
            "Name": "g",
            "Count": count,
            "Tasks": [{
                "Name": "main",
                "Driver": "mock_driver",
                "Config": {"run_for": "1s"},
                "Resources": {"CPU": 100, "MemoryMB": 64}
            }]
        }]
    })
}
