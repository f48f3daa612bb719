//! What of the settings may change while server and node run, in their own words.

use crate::config::settings::{ClientSettings, ServerSettings};
use herdsman_server::{GcConfig, HeartbeatConfig, JobLimits};
use std::time::Duration;

/// Schedulers where the processors cannot be counted.
const SCHEDULERS: usize = 2;

/// Of a server.
pub fn server(settings: &ServerSettings) -> herdsman_server::Tuning {
    let schedulers = match usize::try_from(settings.schedulers) {
        Ok(0) => std::thread::available_parallelism().map_or(SCHEDULERS, std::num::NonZero::get),
        Ok(number) => number,
        Err(_) => usize::MAX,
    };
    herdsman_server::Tuning {
        schedulers,
        snapshot_entries: settings.snapshot_threshold,
        heartbeat: HeartbeatConfig {
            min_ttl: settings.min_heartbeat_ttl,
            grace: settings.heartbeat_grace,
            max_per_second: settings.max_heartbeats_per_second,
            ..HeartbeatConfig::default()
        },
        gc: GcConfig {
            interval: settings.job_gc_interval,
            eval: settings.eval_gc_threshold,
            batch_eval: settings.batch_eval_gc_threshold,
            job: settings.job_gc_threshold,
            node: settings.node_gc_threshold,
            deployment: settings.deployment_gc_threshold,
        },
        jobs: JobLimits {
            default_priority: settings.job_default_priority,
            max_priority: settings.job_max_priority,
            max_count: settings.job_max_count,
            max_source_bytes: usize::try_from(settings.job_max_source_size).unwrap_or(usize::MAX),
            tracked_versions: settings.job_tracked_versions,
        },
    }
}

/// Of a node.
pub fn node(settings: &ClientSettings) -> herdsman_node::Tuning {
    let nanos = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
    herdsman_node::Tuning {
        max_kill_timeout: nanos(settings.max_kill_timeout),
        disable_remote_exec: settings.disable_remote_exec,
        node_max_allocs: settings.node_max_allocs,
        gc: herdsman_node::GcConfig {
            interval: nanos(settings.gc_interval),
            parallel_destroys: usize::try_from(settings.gc_parallel).unwrap_or(2),
            disk_usage_threshold: settings.gc_disk_percent,
            inode_usage_threshold: settings.gc_inode_percent,
            max_allocs: usize::try_from(settings.gc_max_allocs).unwrap_or(50),
        },
    }
}
