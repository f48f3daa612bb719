//! One server, its nodes, and what a story does to them.

use herdsman_model::{AllocId, ClientStatus, DeploymentState, JobStatus};
use herdsman_server::ops::RegisterRequest;
use herdsman_server::{Server, ServerConfig};
use herdsman_sim::node::{Script, SimNode, row};
use herdsman_state::{JobKey, Snapshot};
use herdsman_world::{SimDisk, Simulation, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const SERVER_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// How long, in simulated time, a cluster may take to settle.
const SETTLES_WITHIN: u32 = 1200;

pub struct Cluster {
    sim: Simulation,
    disk: Arc<SimDisk>,
    world: World,
    server: Server,
    pub nodes: Vec<SimNode>,
    boots: u64,
    /// Jobs whose registration was acknowledged, with their count.
    pub acknowledged: BTreeMap<String, usize>,
    /// The highest index that was answered.
    index: u64,
}

fn node_ip(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, n))
}

fn config() -> ServerConfig {
    let consensus = herdsman_consensus::Config::single(1, "/server");
    let mut config = ServerConfig::single(consensus, SocketAddr::new(SERVER_IP, 4647));
    config.schedulers = 2;
    // Snapshots are part of the story.
    config.consensus.snapshot_entries = 40;
    config
}

/// A job in submitted form.
fn job(id: &str, kind: &str, count: usize) -> Value {
    json!({
        "ID": id,
        "Type": kind,
        "TaskGroups": [{
            "Name": "g",
            "Count": count,
            "Update": (kind == "service").then(|| json!({"MinHealthyTime": 1_000_000_000_i64})),
            "Tasks": [{
                "Name": "main",
                "Driver": "mock_driver",
                "Config": {"run_for": "1s"},
                "Resources": {"CPU": 100, "MemoryMB": 64}
            }]
        }]
    })
}

impl Cluster {
    /// One server that leads and this many nodes, each of which runs whatever it is given.
    pub async fn start(seed: u64, nodes: u8) -> Cluster {
        let sim = Simulation::new(seed);
        let disk = Arc::new(SimDisk::new(seed));
        let world = sim.world_with_disk(SERVER_IP, Arc::clone(&disk) as _, 0);
        let server = Server::start(config(), world.clone()).await.unwrap();
        server.ready().await;
        let addr = server.rpc_addr();
        let start = |n| SimNode::start(sim.world(node_ip(n)), addr, row(n), Script::Runs);
        let nodes = (1..=nodes).map(start).collect();
        Cluster { sim, disk, world, server, nodes, boots: 0, acknowledged: BTreeMap::new(), index: 0 }
    }

    /// Registers a job; one that is not acknowledged may be there or not.
    pub async fn register(&mut self, id: &str, count: usize) {
        let request = RegisterRequest { job: job(id, "service", count), ..RegisterRequest::default() };
        if let Ok(done) = self.server.register_job(request).await {
            assert!(done.index > self.index, "indexes only rise: {} after {}", done.index, self.index);
            self.index = done.index;
            self.acknowledged.insert(id.to_string(), count);
        }
    }

    /// The server's host loses power; it starts again on what its disk kept.
    pub async fn crash_server(&mut self) {
        self.disk.crash();
        self.server.shutdown().await;
        self.boots += 1;
        self.world = self.sim.world_with_disk(SERVER_IP, Arc::clone(&self.disk) as _, self.boots);
        self.server = Server::start(config(), self.world.clone()).await.unwrap();
        self.server.ready().await;
    }

    /// Cuts a node off from the server.
    pub fn cut(&self, node: usize) {
        let ip = node_ip(u8::try_from(node + 1).unwrap());
        self.sim.hub().partition(&[SERVER_IP], &[ip]);
    }

    pub fn heal(&self) {
        self.sim.hub().heal();
    }

    pub async fn pass(&self, span: Duration) {
        self.world.clock.sleep(span).await;
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.server.snapshot()
    }

    /// Waits until every acknowledged job has as many healthy copies as it asks for, and checks what must hold then.
    pub async fn settle(&self) {
        for _ in 0..SETTLES_WITHIN {
            if self.unsettled().is_none() {
                return;
            }
            self.pass(Duration::from_secs(1)).await;
        }
        let snapshot = self.snapshot();
        for alloc in snapshot.allocs().filter(|a| !a.server_terminal()) {
            let (on, status, why) = (&alloc.node_name, alloc.client_status, &alloc.desired_description);
            let (id, version, deployment) = (alloc.id.short(), alloc.job_version, alloc.deployment_id);
            eprintln!(
                "{} {id} v{version} on {on}: {status} {why:?} {deployment:?} {:?} {:?} {} {:?}",
                alloc.name, alloc.desired_transition, alloc.deployment_status, alloc.modify_index, alloc.follow_up_eval
            );
        }
        for eval in snapshot.evals() {
            eprintln!(
                "{} {:?} {} {:?} until {:?} {:?}",
                eval.modify_index, eval.triggered_by, eval.job_id, eval.status, eval.wait_until, eval.deployment_id
            );
        }
        for deployment in snapshot.deployments() {
            let (job, version, groups) = (&deployment.job_id, deployment.job_version, &deployment.task_groups);
            eprintln!(
                "deployment of {job} v{version}: {:?} {:?} {groups:?}",
                deployment.status, deployment.status_description
            );
        }
        let now = self.world.clock.now().0;
        panic!("not settled at {now}: {:?}", self.unsettled());
    }

    /// What is not as it should be in the end.
    fn unsettled(&self) -> Option<String> {
        let snapshot = self.snapshot();
        for (id, count) in &self.acknowledged {
            let key = JobKey::new("default", id);
            let Some(job) = snapshot.job(&key.namespace, &key.id) else { return Some(format!("{id} is lost")) };
            if job.status != JobStatus::Running {
                return Some(format!("{id} is {:?}", job.status));
            }
            // What a failed deployment leaves behind is not replaced before somebody registers the job again.
            let latest = snapshot.latest_deployment(&key);
            if latest.is_some_and(|deployment| deployment.status == DeploymentState::Failed) {
                continue;
            }
            let wanted: BTreeSet<String> = (0..*count).map(|n| format!("{id}.g[{n}]")).collect();
            let placed = snapshot.allocs_by_job(&key).filter(|a| !a.server_terminal());
            let running: Vec<String> =
                placed.filter(|a| a.client_status == ClientStatus::Running).map(|a| a.name.clone()).collect();
            if running.len() != *count || running.iter().cloned().collect::<BTreeSet<_>>() != wanted {
                return Some(format!("{id} has {running:?}"));
            }
            // The nodes agree: each name runs once.
            let mut on_nodes: Vec<String> =
                self.nodes.iter().flat_map(SimNode::running).filter(|n| wanted.contains(n)).collect();
            on_nodes.sort();
            let mut once: Vec<String> = wanted.into_iter().collect();
            once.sort();
            if on_nodes != once {
                return Some(format!("{id} runs as {on_nodes:?}"));
            }
        }
        None
    }

    /// No allocation is over-committed and no name placed twice, whatever happened.
    pub fn check_always(&self) {
        let snapshot = self.snapshot();
        let mut names: BTreeMap<String, AllocId> = BTreeMap::new();
        for alloc in snapshot.allocs().filter(|a| !a.terminal() && !a.server_terminal()) {
            let unknown = alloc.client_status == ClientStatus::Unknown;
            if let Some(other) = names.insert(alloc.name.clone(), alloc.id)
                && !unknown
            {
                panic!("{} is wanted twice: {} and {other}", alloc.name, alloc.id);
            }
        }
        let index = snapshot.index();
        assert!(index >= self.index, "index {index} is behind an answered {}", self.index);
    }

    /// Everything there is, as bytes, and what the nodes were told.
    pub fn record(&self) -> (Vec<u8>, Vec<String>) {
        let traces = self.nodes.iter().flat_map(|node| node.trace.lock().unwrap().clone()).collect();
        (self.snapshot().to_stored().unwrap(), traces)
    }
}
