//! Proposals per second, time per proposal and data syncs per command of the replicated log with
//! one voter, on the disk of the given directory (a temporary one by default).
//!
//! `cargo run --release -p herdsman-consensus --example log_bench [DIRECTORY]`
#![allow(clippy::print_stdout)]

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use herdsman_consensus::{Config, Consensus, Machine, SnapshotWriter};
use herdsman_world::{Clock, Disk, DiskEntry, DiskFile, OpenMode, RealDisk, World};

/// How long each measurement runs.
const SPAN: Duration = Duration::from_secs(3);
/// Size of a command in bytes, about that of a small allocation update.
const COMMAND_BYTES: usize = 256;

struct Counter(u64);

impl Machine for Counter {
    fn apply(&mut self, _: u64, commands: Vec<Bytes>) -> Vec<Bytes> {
        self.0 += commands.len() as u64;
        commands.iter().map(|_| Bytes::new()).collect()
    }

    fn snapshot(&self) -> SnapshotWriter {
        let count = self.0;
        Box::new(move |to| to.write_all(&count.to_le_bytes()))
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }
}

#[derive(Debug, Default, Clone)]
struct CountingDisk(Arc<AtomicU64>);

#[derive(Debug)]
struct CountingFile(Arc<dyn DiskFile>, Arc<AtomicU64>);

impl DiskFile for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.sync_data()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.0.preallocate(len)
    }
}

impl Disk for CountingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(CountingFile(RealDisk.open(path, mode)?, Arc::clone(&self.0))))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DiskEntry>> {
        RealDisk.list(dir)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        RealDisk.lock(path)
    }
}

fn calibrate(dir: &Path, clock: &dyn Clock) -> io::Result<()> {
    let file = RealDisk.open(&dir.join("calibration"), OpenMode::CreateNew)?;
    file.preallocate(1024 * 1024)?;
    file.sync_data()?;
    let mut times = Vec::new();
    for at in 0..500_u64 {
        let start = clock.monotonic();
        file.write_all_at(&[1; 512], at * 512)?;
        file.sync_data()?;
        times.push(clock.monotonic().since(start));
    }
    times.sort();
    println!("this disk: write and data sync of 512 bytes, median {:?}", times[times.len() / 2]);
    RealDisk.remove(&dir.join("calibration"))
}

async fn measure(log: &Consensus, world: &World, syncs: &AtomicU64, writers: usize) {
    let before = syncs.load(Ordering::Relaxed);
    let start = world.clock.monotonic();
    let end = start.plus(SPAN);
    let mut tasks = Vec::new();
    for _ in 0..writers {
        let (log, clock) = (log.clone(), Arc::clone(&world.clock));
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::new();
            let command = Bytes::from(vec![7; COMMAND_BYTES]);
            loop {
                let begin = clock.monotonic();
                if begin >= end {
                    return times;
                }
                if let Err(error) = log.propose(command.clone()).await {
                    println!("a proposal failed: {error}");
                    return times;
                }
                times.push(clock.monotonic().since(begin));
            }
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap_or_default());
    }
    let took = world.clock.monotonic().since(start).as_secs_f64();
    times.sort();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    let count = times.len() as f64;
    println!(
        "{writers:3} writers: {:8.0} proposals/s, p50 {:?}, p99 {:?}, {:.3} data syncs per command",
        count / took,
        at(50),
        at(99),
        (syncs.load(Ordering::Relaxed) - before) as f64 / count,
    );
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary;
    let dir = match std::env::args().nth(1) {
        Some(dir) => PathBuf::from(dir),
        None => {
            temporary = tempfile::tempdir()?;
            temporary.path().to_path_buf()
        }
    };
    let disk = CountingDisk::default();
    let syncs = Arc::clone(&disk.0);
    let world = World { disk: Arc::new(disk), ..World::real()? };
    calibrate(&dir, &*world.clock)?;
    for start in ["first start", "restart"] {
        let begin = world.clock.monotonic();
        let log = Consensus::open(Config::single(1, dir.join("log")), world.clone(), Box::new(Counter(0))).await?;
        log.leadership().wait_for(|now| now.ready).await?;
        println!("{start}: leader ready after {:?}", world.clock.monotonic().since(begin));
        if start == "first start" {
            for writers in [1, 8, 64] {
                measure(&log, &world, &syncs, writers).await;
            }
        }
        println!("{:?}", log.status().await);
        log.shutdown().await;
    }
    Ok(())
}
