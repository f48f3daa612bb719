//! Several servers on a simulated network.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use herdsman_consensus::{Config, Consensus, NodeId, ProposeError};
use herdsman_world::{SimDisk, Simulation};

use crate::machine::Recorder;

struct Server {
    log: Consensus,
    machine: Recorder,
}

struct Cluster {
    simulation: Simulation,
    disks: BTreeMap<NodeId, SimDisk>,
    servers: BTreeMap<NodeId, Server>,
    boots: u64,
}

fn ip(id: NodeId) -> IpAddr {
    IpAddr::from([10, 0, 0, u8::try_from(id).unwrap()])
}

fn address(id: NodeId) -> SocketAddr {
    SocketAddr::new(ip(id), 4647)
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let simulation = Simulation::new(seed);
        simulation.hub().set_latency(Duration::from_micros(100), Duration::from_millis(2));
        Cluster { simulation, disks: BTreeMap::new(), servers: BTreeMap::new(), boots: 0 }
    }

    async fn start(&mut self, id: NodeId, voters: &[NodeId]) {
        self.boots += 1;
        let disk = self.disks.entry(id).or_insert_with(|| SimDisk::new(id)).clone();
        let world = self.simulation.world_with_disk(ip(id), Arc::new(disk), self.boots);
        let bootstrap = voters.iter().map(|id| (*id, address(*id).to_string())).collect();
        let config = Config {
            address: address(id).to_string(),
            listen: Some(address(id)),
            bootstrap: (!voters.is_empty()).then_some(bootstrap),
            segment_bytes: 64 * 1024,
            keep_entries: 10,
            ..Config::single(id, "/log")
        };
        let machine = Recorder::default();
        let log = Consensus::open(config, world, Box::new(machine.clone())).await.unwrap();
        self.servers.insert(id, Server { log, machine });
    }

    async fn stop(&mut self, id: NodeId) {
        if let Some(server) = self.servers.remove(&id) {
            self.simulation.hub().stop_host(ip(id));
            server.log.shutdown().await;
        }
    }

    /// A server that leads and is ready, in the view of the servers named.
    async fn leader(&self, among: &[NodeId]) -> NodeId {
        for _ in 0..600 {
            let mut ready: Vec<(u64, NodeId)> = Vec::new();
            for id in among {
                let now = *self.servers[id].log.leadership().borrow();
                if now.ready {
                    ready.push((now.term, *id));
                }
            }
            if let Some((_, id)) = ready.into_iter().max() {
                return id;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no leader within a minute");
    }

    async fn propose(&self, id: NodeId, text: &str) -> Result<u64, ProposeError> {
        let applied = self.servers[&id].log.propose(Bytes::from(text.to_owned())).await?;
        assert!(applied.result.starts_with(text.as_bytes()));
        Ok(applied.log_index)
    }

    async fn same_everywhere(&self, commands: usize) {
        for _ in 0..600 {
            let all: Vec<_> = self.servers.values().map(|server| server.machine.seen()).collect();
            if all.iter().all(|seen| seen.len() >= commands && *seen == all[0]) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let counts: Vec<_> = self.servers.values().map(|server| server.machine.seen().len()).collect();
        panic!("not the same within a minute: {counts:?}, {commands} wanted");
    }

    async fn stop_all(mut self) {
        for id in self.servers.keys().copied().collect::<Vec<_>>() {
            self.stop(id).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn three_servers_replicate_and_survive_the_loss_of_one() {
    let mut cluster = Cluster::new(3);
    for id in 1..=3 {
        cluster.start(id, &[1, 2, 3]).await;
    }
    let leader = cluster.leader(&[1, 2, 3]).await;
    for number in 0..50 {
        cluster.propose(leader, &format!("a{number}")).await.unwrap();
    }
    cluster.servers[&leader].log.read_barrier().await.unwrap();
    cluster.same_everywhere(50).await;
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    let refused = cluster.propose(follower, "no").await.unwrap_err();
    let there = address(leader).to_string();
    assert_eq!(refused, ProposeError::NotLeader { leader: Some(leader), address: Some(there) });
    assert!(cluster.servers[&follower].log.read_barrier().await.is_err());
    cluster.stop(leader).await;
    let rest: Vec<NodeId> = (1..=3).filter(|id| *id != leader).collect();
    let second = cluster.leader(&rest).await;
    for number in 0..50 {
        cluster.propose(second, &format!("b{number}")).await.unwrap();
    }
    cluster.start(leader, &[1, 2, 3]).await;
    cluster.same_everywhere(100).await;
    cluster.stop_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_acknowledges_nothing_and_steps_down() {
    let mut cluster = Cluster::new(5);
    for id in 1..=3 {
        cluster.start(id, &[1, 2, 3]).await;
    }
    let old = cluster.leader(&[1, 2, 3]).await;
    cluster.propose(old, "before").await.unwrap();
    let rest: Vec<NodeId> = (1..=3).filter(|id| *id != old).collect();
    let others: Vec<IpAddr> = rest.iter().map(|id| ip(*id)).collect();
    cluster.simulation.hub().partition(&[ip(old)], &others);
    let lost = cluster.propose(old, "lost").await.unwrap_err();
    assert!(matches!(lost, ProposeError::Timeout { .. }), "{lost}");
    assert!(cluster.servers[&old].log.read_barrier().await.is_err());
    let new = cluster.leader(&rest).await;
    cluster.propose(new, "after").await.unwrap();
    cluster.simulation.hub().heal();
    cluster.same_everywhere(2).await;
    assert_eq!(cluster.servers[&old].machine.seen(), ["before", "after"]);
    cluster.stop_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_alone_grows_into_a_cluster_by_snapshot_and_shrinks_again() {
    let mut cluster = Cluster::new(9);
    cluster.start(1, &[1]).await;
    cluster.leader(&[1]).await;
    for number in 0..200 {
        cluster.propose(1, &format!("{number}-{}", "x".repeat(2000))).await.unwrap();
    }
    let first = &cluster.servers[&1].log;
    first.snapshot_now().await.unwrap();
    // More of the log is gone than a new server could be brought up to date from.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(first.status().await.purged.is_some());
    cluster.start(2, &[]).await;
    cluster.start(3, &[]).await;
    for id in [2, 3] {
        cluster.servers[&1].log.add_member(id, address(id).to_string()).await.unwrap();
    }
    cluster.servers[&1].log.set_voters([1, 2, 3]).await.unwrap();
    let members = cluster.servers[&1].log.members();
    assert_eq!(members.iter().filter(|member| member.voter).count(), 3);
    cluster.propose(1, "three").await.unwrap();
    cluster.same_everywhere(201).await;
    assert!(cluster.servers[&2].log.status().await.snapshot.is_some());
    let refused = cluster.servers[&2].log.set_voters([2]).await.unwrap_err();
    assert!(refused.to_string().contains("not the leader"), "{refused}");
    cluster.stop(1).await;
    let leader = cluster.leader(&[2, 3]).await;
    cluster.servers[&leader].log.set_voters([2, 3]).await.unwrap();
    cluster.propose(leader, "two").await.unwrap();
    cluster.same_everywhere(202).await;
    cluster.stop_all().await;
}

#[tokio::test(start_paused = true)]
async fn acknowledged_commands_survive_crashes_and_cuts_of_three_servers() {
    let mut cluster = Cluster::new(11);
    let all = [1, 2, 3];
    for id in all {
        cluster.start(id, &all).await;
    }
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..12_u64 {
        let leader = cluster.leader(&all).await;
        for number in 0..10 {
            let text = format!("{round}-{number}");
            if cluster.propose(leader, &text).await.is_ok() {
                acknowledged.push(text);
            }
        }
        let victim = all[usize::try_from(round % 3).unwrap()];
        if round % 2 == 0 {
            cluster.stop(victim).await;
            cluster.disks[&victim].crash();
            cluster.start(victim, &all).await;
        } else {
            let others: Vec<IpAddr> = all.iter().filter(|id| **id != victim).map(|id| ip(*id)).collect();
            cluster.simulation.hub().partition(&[ip(victim)], &others);
            tokio::time::sleep(Duration::from_secs(5)).await;
            cluster.simulation.hub().heal();
        }
        if round % 4 == 3 {
            for server in cluster.servers.values() {
                server.log.snapshot_now().await.unwrap();
            }
        }
    }
    let leader = cluster.leader(&all).await;
    cluster.propose(leader, "last").await.unwrap();
    cluster.same_everywhere(acknowledged.len() + 1).await;
    let seen = cluster.servers[&1].machine.seen();
    let mut order = seen.iter();
    assert!(acknowledged.iter().all(|text| order.any(|found| found == text.as_bytes())));
    assert!(acknowledged.len() > 60, "{}", acknowledged.len());
    cluster.stop_all().await;
}
