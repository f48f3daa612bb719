//! How long plans take: `cargo run --release -p herdsman-scheduler --example plan_bench`.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)]

use herdsman_model::*;
use herdsman_scheduler::{Config, Load, View, process};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 15;

struct Cluster {
    nodes: BTreeMap<NodeId, Arc<Node>>,
    by_node: BTreeMap<NodeId, Vec<Arc<Allocation>>>,
    loads: BTreeMap<NodeId, Load>,
    job: Arc<Job>,
    config: Config,
}

impl View for Cluster {
    fn index(&self) -> u64 {
        1
    }
    fn job(&self, _: &str, _: &str) -> Option<Arc<Job>> {
        Some(self.job.clone())
    }
    fn job_version(&self, _: &str, _: &str, _: u64) -> Option<Arc<Job>> {
        Some(self.job.clone())
    }
    fn allocs_by_job(&self, _: &str, _: &str) -> Vec<Arc<Allocation>> {
        Vec::new()
    }
    fn allocs_by_node(&self, node: &NodeId) -> Vec<Arc<Allocation>> {
        self.by_node.get(node).cloned().unwrap_or_default()
    }
    fn alloc(&self, _: &AllocId) -> Option<Arc<Allocation>> {
        None
    }
    fn node(&self, id: &NodeId) -> Option<Arc<Node>> {
        self.nodes.get(id).cloned()
    }
    fn for_each_node(&self, visit: &mut dyn FnMut(&Arc<Node>)) {
        self.nodes.values().for_each(visit);
    }
    fn latest_deployment(&self, _: &str, _: &str) -> Option<Arc<Deployment>> {
        None
    }
    fn config(&self) -> Config {
        self.config.clone()
    }
    fn load(&self, node: &NodeId) -> Option<Load> {
        self.loads.get(node).cloned()
    }
}

fn id(n: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    bytes
}

fn node(n: u64, racks: u64) -> Node {
    let address =
        NodeAddress { alias: "default".into(), address: format!("10.0.{}.{}", n / 250, n % 250), ..Default::default() };
    Node {
        id: NodeId(id(n)),
        name: format!("node-{n}").into(),
        datacenter: "dc1".into(),
        computed_class: format!("v1:{}", n % racks),
        meta: [("rack".to_owned(), format!("r{}", n % racks))].into(),
        drivers: [("raw_exec".to_owned(), DriverInfo { detected: true, healthy: true, ..Default::default() })].into(),
        resources: NodeResources {
            cpu_shares: 1_000_000,
            total_cores: 64,
            memory_mb: 1_000_000,
            disk_mb: 10_000_000,
            node_networks: vec![NodeNetwork {
                mode: "host".into(),
                addresses: vec![address].into(),
                ..Default::default()
            }],
            ..Default::default()
        },
        status: NodeStatus::Ready,
        ..Default::default()
    }
}

fn job(kind: JobType, count: i64, spread: bool, port: bool) -> Job {
    let task = Task {
        name: "t".into(),
        driver: "raw_exec".into(),
        resources: Resources { cpu: 100, memory_mb: 100, ..Default::default() },
        ..Default::default()
    };
    let mut group = TaskGroup { name: "g".into(), count, tasks: vec![Arc::new(task)].into(), ..Default::default() };
    if spread {
        group.spreads.0.push(Spread { attribute: "${meta.rack}".into(), weight: 100, ..Default::default() });
    }
    if port {
        let port = Port { label: "http".into(), ..Default::default() };
        group.networks.0.push(NetworkResource { dynamic_ports: vec![port].into(), ..Default::default() });
    }
    Job {
        id: "j".into(),
        namespace: "default".into(),
        kind,
        priority: 50,
        datacenters: vec!["*".to_owned()].into(),
        task_groups: vec![Arc::new(group)].into(),
        ..Default::default()
    }
}

fn measure(what: &str, nodes: u64, racks: u64, job: Job) {
    let count = job.task_groups[0].count;
    let nodes: BTreeMap<_, _> = (0..nodes).map(|n| (NodeId(id(n)), Arc::new(node(n, racks)))).collect();
    let loads = nodes.keys().map(|n| (*n, Load::default())).collect();
    let kind = job.kind;
    let cluster = Cluster { nodes, by_node: BTreeMap::new(), loads, job: Arc::new(job), config: Config::default() };
    let eval = Evaluation { namespace: "default".into(), job_id: "j".into(), kind, priority: 50, ..Default::default() };
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let mut next = 0;
        let mut ids = || {
            next += 1;
            id(next)
        };
        let start = Instant::now();
        let decision = process(&cluster, &eval, round as u64, 0, &mut ids);
        times.push(start.elapsed());
        let placed: usize = decision.plan.placements.values().map(Vec::len).sum();
        assert!(kind.is_system() || i64::try_from(placed).unwrap() == count, "{placed}");
    }
    times.sort();
    println!("{what:<58} median {:>9.3?}  worst {:>9.3?}", times[ROUNDS / 2], times[ROUNDS - 1]);
}

fn main() {
    measure("1,000 of a batch group on 3 nodes", 3, 3, job(JobType::Batch, 1000, false, false));
    measure("1,000 of a batch group with a port on 3 nodes", 3, 3, job(JobType::Batch, 1000, false, true));
    measure("1,000 of a service group on 200 nodes", 200, 25, job(JobType::Service, 1000, false, false));
    measure("a system job on 1,000 nodes", 1000, 25, job(JobType::System, 1, false, false));
    for (nodes, racks) in [(1000, 75), (5000, 25), (10_000, 75)] {
        for count in [50, 300, 900] {
            for spread in [false, true] {
                let what = format!(
                    "{count} of a service group on {nodes} nodes, {racks} racks{}",
                    if spread { ", spread" } else { "" }
                );
                measure(&what, nodes, racks, job(JobType::Service, count, spread, false));
            }
        }
    }
}
