//! How a server is set up.

use herdsman_state::SchedulerConfig;
use std::net::SocketAddr;
use std::time::Duration;

/// How a server is set up. [`ServerConfig::single`] fills in the defaults of `compat/wire-notes.md` section 13.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The log: directory, number of this server, voters.
    pub consensus: herdsman_consensus::Config,
    pub region: String,
    pub datacenter: String,
    pub name: String,
    /// Where nodes dial; port 0 takes any free one.
    pub rpc_listen: SocketAddr,
    /// What nodes are told to dial; empty: the address listened on.
    pub rpc_advertise: String,
    /// How many schedulers run at once.
    pub schedulers: usize,
    pub heartbeat: HeartbeatConfig,
    pub gc: GcConfig,
    pub jobs: JobLimits,
    /// How the schedulers of a cluster decide until somebody says otherwise.
    pub scheduler: SchedulerConfig,
    /// An evaluation whose scheduler is silent for this long is given to another.
    pub nack_timeout: Duration,
    /// The wait before an evaluation that failed to be delivered is tried again as a new one.
    pub failed_follow_up: Duration,
}

/// What may change while a server runs.
#[derive(Debug, Clone)]
pub struct Tuning {
    pub schedulers: usize,
    /// A snapshot is taken after this many applied log entries; at least 1.
    pub snapshot_entries: u64,
    pub heartbeat: HeartbeatConfig,
    pub gc: GcConfig,
    pub jobs: JobLimits,
}

/// How long a node may be silent.
#[derive(Debug, Clone)]
pub struct HeartbeatConfig {
    pub min_ttl: Duration,
    pub grace: Duration,
    pub max_per_second: f64,
    /// What every node gets when this server begins to lead.
    pub failover_ttl: Duration,
}

/// When what is over is collected.
#[derive(Debug, Clone)]
pub struct GcConfig {
    pub interval: Duration,
    pub eval: Duration,
    pub batch_eval: Duration,
    pub job: Duration,
    pub node: Duration,
    pub deployment: Duration,
}

/// Limits of jobs.
#[derive(Debug, Clone)]
pub struct JobLimits {
    pub default_priority: i64,
    pub max_priority: i64,
    /// Allocations a job may ask for, over all groups.
    pub max_count: i64,
    /// Bytes of source text kept with a job.
    pub max_source_bytes: usize,
    pub tracked_versions: u64,
}

/// An hour.
const HOUR: Duration = Duration::from_secs(3600);

impl ServerConfig {
    /// This configuration with what may change while a server runs taken from there.
    #[must_use]
    pub(crate) fn with(&self, tuning: Tuning) -> ServerConfig {
        let Tuning { schedulers, snapshot_entries, heartbeat, gc, jobs } = tuning;
        let consensus = herdsman_consensus::Config { snapshot_entries, ..self.consensus.clone() };
        ServerConfig { schedulers, consensus, heartbeat, gc, jobs, ..self.clone() }
    }

    /// A server on its own, with every default.
    pub fn single(consensus: herdsman_consensus::Config, rpc_listen: SocketAddr) -> ServerConfig {
        ServerConfig {
            consensus,
            region: "global".to_owned(),
            datacenter: "dc1".to_owned(),
            name: "server".to_owned(),
            rpc_listen,
            rpc_advertise: String::new(),
            schedulers: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            heartbeat: HeartbeatConfig::default(),
            gc: GcConfig::default(),
            jobs: JobLimits::default(),
            scheduler: SchedulerConfig::default(),
            nack_timeout: Duration::from_secs(60),
            failed_follow_up: Duration::from_secs(60),
        }
    }
}

impl Default for HeartbeatConfig {
    fn default() -> HeartbeatConfig {
        HeartbeatConfig {
            min_ttl: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            max_per_second: 50.0,
            failover_ttl: Duration::from_secs(300),
        }
    }
}

impl Default for GcConfig {
    fn default() -> GcConfig {
        GcConfig {
            interval: Duration::from_secs(300),
            eval: HOUR,
            batch_eval: HOUR * 24,
            job: HOUR * 4,
            node: HOUR * 24,
            deployment: HOUR,
        }
    }
}

impl Default for JobLimits {
    fn default() -> JobLimits {
        JobLimits {
            default_priority: 50,
            max_priority: 100,
            max_count: 50_000,
            max_source_bytes: 1024 * 1024,
            tracked_versions: 6,
        }
    }
}
