//! One server.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use herdsman_consensus::{Config, Consensus, OpenError, ProposeError, SnapshotError, limits};
use herdsman_world::{Disk, DiskFault, SimDisk, Simulation, World};

use crate::machine::Recorder;

const DIR: &str = "/data/log";

fn world(disk: &SimDisk, boot: u64) -> World {
    Simulation::new(7).world_with_disk(IpAddr::V4(Ipv4Addr::LOCALHOST), Arc::new(disk.clone()), boot)
}

fn config() -> Config {
    Config { segment_bytes: 64 * 1024, ..Config::single(1, DIR) }
}

async fn start(disk: &SimDisk, config: Config) -> (Consensus, Recorder) {
    let machine = Recorder::default();
    let log = Consensus::open(config, world(disk, 0), Box::new(machine.clone())).await.unwrap();
    ready(&log).await;
    (log, machine)
}

async fn ready(log: &Consensus) {
    let mut leadership = log.leadership();
    let wait = leadership.wait_for(|now| now.ready && now.is_leader && now.leader == Some(log.node_id()));
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap().unwrap();
}

fn command(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

#[tokio::test(start_paused = true)]
async fn a_lone_proposal_costs_exactly_one_sync() {
    let disk = SimDisk::new(1);
    let (log, _) = start(&disk, config()).await;
    for number in 0..10 {
        let before = disk.stats();
        let applied = log.propose(command(format!("{number}"))).await.unwrap();
        let after = disk.stats();
        assert_eq!(applied.result, format!("{number}@{}#{number}", applied.log_index));
        assert_eq!((after.syncs - before.syncs, after.writes - before.writes), (1, 1));
        assert_eq!(after.dir_syncs, before.dir_syncs);
        log.read_barrier().await.unwrap();
    }
    log.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_only_voter_is_ready_without_waiting() {
    let disk = SimDisk::new(1);
    let begin = tokio::time::Instant::now();
    for _ in 0..3 {
        let (log, _) = start(&disk, config()).await;
        log.propose(command("x")).await.unwrap();
        log.shutdown().await;
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn concurrent_proposals_share_syncs() {
    let disk = SimDisk::new(1);
    let syncs = sixty_four_writers(&disk).await;
    assert!(syncs * 10 < 64 * 50, "{syncs} syncs for {} commands", 64 * 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_of_many_parallel_proposers_gets_its_own_result() {
    let disk = SimDisk::new(1);
    let syncs = sixty_four_writers(&disk).await;
    assert!(syncs < 64 * 50 + 100, "{syncs} syncs for {} commands", 64 * 50);
}

/// Each proposes 50 commands and checks its results; gives the data syncs.
async fn sixty_four_writers(disk: &SimDisk) -> u64 {
    let (log, machine) = start(disk, config()).await;
    let before = disk.stats().syncs;
    let mut tasks = Vec::new();
    for writer in 0..64 {
        let log = log.clone();
        tasks.push(tokio::spawn(async move {
            for number in 0..50 {
                let text = format!("{writer}-{number}");
                let applied = log.propose(command(text.clone())).await.unwrap();
                let result = String::from_utf8(applied.result.to_vec()).unwrap();
                assert!(result.starts_with(&format!("{text}@{}#", applied.log_index)), "{text}: {result}");
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let seen = machine.seen();
    assert_eq!(seen.len(), 64 * 50);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 64 * 50);
    log.shutdown().await;
    disk.stats().syncs - before
}

#[tokio::test(start_paused = true)]
async fn what_was_acknowledged_survives_crashes_at_random_moments() {
    for seed in 0..60_u64 {
        let disk = SimDisk::new(seed);
        let mut acknowledged: Vec<Bytes> = Vec::new();
        let mut sent: BTreeSet<Bytes> = BTreeSet::new();
        for life in 0..6_u64 {
            let machine = Recorder::default();
            disk.inject(DiskFault::PowerAfter(5 + (seed * 31 + life * 17) % 60));
            let config = Config { snapshot_entries: 7, keep_entries: 3, ..config() };
            let opened = Consensus::open(config, world(&disk, life), Box::new(machine.clone())).await;
            if let Ok(log) = opened {
                let mut leadership = log.leadership();
                let leads = leadership.wait_for(|now| now.ready);
                let leads = tokio::time::timeout(Duration::from_secs(5), leads).await.is_ok_and(|r| r.is_ok());
                if leads {
                    let seen: BTreeSet<Bytes> = machine.seen().into_iter().collect();
                    assert!(acknowledged.iter().all(|command| seen.contains(command)), "seed {seed} life {life}");
                    assert!(seen.is_subset(&sent), "seed {seed} life {life}: invented");
                }
                for number in 0..30 {
                    let text = command(format!("{life}-{number}-{}", "x".repeat(3000)));
                    sent.insert(text.clone());
                    match log.propose(text.clone()).await {
                        Ok(_) => acknowledged.push(text),
                        Err(_) => break,
                    }
                }
                log.shutdown().await;
            }
            disk.crash();
        }
        let (log, machine) = start(&disk, config()).await;
        let seen = machine.seen();
        let once: BTreeSet<Bytes> = seen.iter().cloned().collect();
        assert_eq!(seen.len(), once.len(), "seed {seed}: applied twice");
        assert!(acknowledged.iter().all(|command| once.contains(command)), "seed {seed}");
        let mut order = seen.iter();
        assert!(acknowledged.iter().all(|command| order.any(|found| found == command)), "seed {seed}: order");
        assert!(!acknowledged.is_empty());
        log.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_and_log_give_the_same_state_as_the_log_alone() {
    let (with, without) = (SimDisk::new(1), SimDisk::new(2));
    let mut results = Vec::new();
    for (disk, snapshots) in [(&with, true), (&without, false)] {
        let (log, _) = start(disk, Config { keep_entries: 10, ..config() }).await;
        for number in 0..500 {
            log.propose(command(format!("{number}-{}", "y".repeat(number)))).await.unwrap();
            if snapshots && number % 100 == 60 {
                let index = log.snapshot_now().await.unwrap();
                assert_eq!(index, log.status().await.applied);
                // Nothing new: the same one.
                assert_eq!(log.snapshot_now().await.unwrap(), index);
            }
        }
        let status = log.status().await;
        assert_eq!(status.purged.is_some(), snapshots);
        assert_eq!(status.last_log, status.applied);
        assert_eq!(status.committed, status.applied);
        log.shutdown().await;
        let (log, machine) = start(disk, config()).await;
        assert_eq!(log.status().await.applied, status.applied);
        results.push(machine.seen());
        log.shutdown().await;
    }
    assert_eq!(results[0].len(), 500);
    assert_eq!(results[0], results[1]);
    let files = with.list(Path::new(DIR)).unwrap();
    assert_eq!(files.iter().filter(|file| file.name.ends_with(".snap")).count(), 1);
    let segments =
        |disk: &SimDisk| disk.list(Path::new(DIR)).unwrap().iter().filter(|file| file.name.ends_with(".seg")).count();
    assert!(segments(&with) < segments(&without));
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_taken_by_count_and_by_bytes() {
    for limits in [Config { snapshot_entries: 20, ..config() }, Config { snapshot_bytes: 20_000, ..config() }] {
        let disk = SimDisk::new(1);
        let (log, _) = start(&disk, limits).await;
        for number in 0..30 {
            log.propose(command(format!("{number}-{}", "z".repeat(1000)))).await.unwrap();
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(log.status().await.snapshot.is_some());
        log.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_proposals_and_snapshots_until_there_is_room() {
    let disk = SimDisk::new(1);
    let (log, machine) = start(&disk, config()).await;
    disk.inject(DiskFault::Capacity(140 * 1024));
    let mut taken = 0;
    let error = loop {
        match log.propose(command(format!("{taken}-{}", "x".repeat(5000)))).await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, ProposeError::Refused { reason } if reason.contains("full")), "{error}");
    assert!(taken > 3);
    let refused = log.snapshot_now().await.unwrap_err();
    assert!(matches!(&refused, SnapshotError::Write(reason) if reason.contains("full")), "{refused}");
    let status = log.status().await;
    assert_eq!(status.failure, None);
    assert!(status.snapshot_error.is_some());
    log.read_barrier().await.unwrap();
    disk.heal();
    log.propose(command("room again")).await.unwrap();
    log.snapshot_now().await.unwrap();
    assert_eq!(log.status().await.snapshot_error, None);
    assert_eq!(machine.seen().len(), taken + 1);
    log.shutdown().await;
    let (log, machine) = start(&disk, config()).await;
    assert_eq!(machine.seen().len(), taken + 1);
    log.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_is_reported_and_stops_the_log() {
    let disk = SimDisk::new(1);
    let (log, _) = start(&disk, config()).await;
    log.propose(command("kept")).await.unwrap();
    disk.inject(DiskFault::SyncAfter(0));
    let error = log.propose(command("unknown")).await.unwrap_err();
    assert!(matches!(&error, ProposeError::Failed { reason } if reason.contains("sync")), "{error}");
    disk.heal();
    let error = log.propose(command("later")).await.unwrap_err();
    assert!(matches!(error, ProposeError::Failed { .. }), "{error}");
    let mut failure = log.failure();
    failure.wait_for(Option::is_some).await.unwrap();
    log.leadership().wait_for(|now| !now.is_leader && !now.ready).await.unwrap();
    log.shutdown().await;
    disk.crash();
    let (log, machine) = start(&disk, config()).await;
    let seen = machine.seen();
    assert_eq!(seen[0], "kept");
    assert!(seen.len() == 1 || seen[1..] == ["unknown"], "{seen:?}");
    log.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_panics_stops_the_log_with_a_reason() {
    let disk = SimDisk::new(1);
    let (log, _) = start(&disk, config()).await;
    let error = log.propose(command("panic")).await.unwrap_err();
    assert!(matches!(&error, ProposeError::Failed { reason } if reason.contains("panicked")), "{error}");
    log.failure().wait_for(Option::is_some).await.unwrap();
    log.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn limits_and_states_have_clear_errors() {
    let disk = SimDisk::new(1);
    let (log, _) = start(&disk, config()).await;
    let large = Bytes::from(vec![0; limits::MAX_COMMAND_BYTES + 1]);
    let error = log.propose(large).await.unwrap_err();
    assert_eq!(error.to_string(), "a command of 8388609 bytes is larger than the 8388608 allowed");
    log.propose(Bytes::from(vec![1; limits::MAX_COMMAND_BYTES])).await.unwrap();
    let second = Consensus::open(config(), world(&disk, 1), Box::new(Recorder::default())).await.unwrap_err();
    assert!(matches!(second, OpenError::Locked { .. }), "{second}");
    log.shutdown().await;
    assert_eq!(log.propose(command("x")).await.unwrap_err(), ProposeError::Shutdown);
    assert_eq!(log.snapshot_now().await.unwrap_err(), SnapshotError::Shutdown);
    let (again, machine) = start(&disk, config()).await;
    assert_eq!(machine.seen().len(), 1);
    again.shutdown().await;
    for wrong in [
        Config { segment_bytes: 1, ..config() },
        Config { election_ms: 10, ..config() },
        Config { snapshot_entries: 0, ..config() },
        Config { node_id: 2, ..config() },
    ] {
        let error = Consensus::open(wrong, world(&disk, 1), Box::new(Recorder::default())).await.unwrap_err();
        assert!(matches!(error, OpenError::Config { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn damage_refuses_the_start_and_names_the_file() {
    let disk = SimDisk::new(1);
    let (log, _) = start(&disk, Config { keep_entries: 1, ..config() }).await;
    for number in 0..400 {
        log.propose(command(format!("{number}-{}", "x".repeat(400)))).await.unwrap();
    }
    log.snapshot_now().await.unwrap();
    log.status().await;
    log.shutdown().await;
    let snapshot = disk.list(Path::new(DIR)).unwrap().into_iter().find(|file| file.name.ends_with(".snap")).unwrap();
    disk.corrupt(&Path::new(DIR).join(&snapshot.name), 500, 4).unwrap();
    let error = Consensus::open(config(), world(&disk, 1), Box::new(Recorder::default())).await.unwrap_err();
    assert!(matches!(&error, OpenError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains(&snapshot.name), "{error}");
    disk.corrupt(&Path::new(DIR).join(&snapshot.name), 500, 4).unwrap();
    let (log, machine) = start(&disk, config()).await;
    assert_eq!(machine.seen().len(), 400);
    log.shutdown().await;
    for file in disk.list(Path::new(DIR)).unwrap() {
        if file.name.ends_with(".seg") {
            disk.remove(&Path::new(DIR).join(&file.name)).unwrap();
        }
    }
    let error = Consensus::open(config(), world(&disk, 1), Box::new(Recorder::default())).await.unwrap_err();
    assert!(error.to_string().contains("the log is not"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_disk_keeps_the_log_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        Config { snapshot_entries: 40, keep_entries: 5, segment_bytes: 128 * 1024, ..Config::single(3, dir.path()) };
    for life in 0..4_usize {
        let machine = Recorder::default();
        // The one before may be at its end still when it was only dropped.
        let log = loop {
            let opened = Consensus::open(config.clone(), World::real().unwrap(), Box::new(machine.clone())).await;
            match opened {
                Err(OpenError::Locked { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
                opened => break opened.unwrap(),
            }
        };
        ready(&log).await;
        assert_eq!(machine.seen().len(), life * 100);
        for number in 0..100 {
            log.propose(command(format!("{life}-{number}-{}", "x".repeat(2000)))).await.unwrap();
        }
        assert_eq!(log.members().len(), 1);
        if life == 2 {
            // Dropped without a word, as by a kill.
            drop(log);
        } else {
            log.shutdown().await;
        }
    }
}
