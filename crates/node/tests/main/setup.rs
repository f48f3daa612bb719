//! Nodes and jobs for tests.

use herdsman_drivers::{Drivers, Executor, RawExecDriver, RawExecOptions};
use herdsman_model::*;
use herdsman_node::{Node, NodeConfig};
use herdsman_shim::{ShimConfig, ShimHost};
use herdsman_world::World;
use std::path::Path;
use std::sync::Arc;

pub const SECOND: i64 = 1_000_000_000;

pub fn config(dir: &Path, server: &str) -> NodeConfig {
    NodeConfig {
        state_dir: dir.join("state"),
        alloc_dir: dir.join("alloc"),
        servers: vec![server.to_string()],
        name: "test-node".into(),
        version: "2.0.5".into(),
        ..NodeConfig::default()
    }
}

pub async fn drivers(dir: &Path) -> Drivers {
    let shim = ShimConfig { run_root: dir.join("run"), cgroup_parent: "herdsman-test.slice".into() };
    let executor = Arc::new(Executor::new(Arc::new(ShimHost::open(shim).await.unwrap())));
    let options = RawExecOptions { enabled: true, ..RawExecOptions::default() };
    let mut drivers = Drivers::new();
    drivers.add(Arc::new(RawExecDriver::new(executor, options).unwrap()));
    drivers
}

pub async fn node(dir: &Path, server: &str) -> Node {
    Node::start(config(dir, server), World::real().unwrap(), drivers(dir).await).await.unwrap()
}

/// A raw_exec task that runs a shell script.
pub fn sh(name: &str, hook: Option<(Hook, bool)>, script: &str) -> Task {
    let config = [
        ("command".to_string(), serde_json::json!("/bin/sh")),
        ("args".to_string(), serde_json::json!(["-c", script])),
    ];
    Task {
        name: name.into(),
        driver: "raw_exec".into(),
        lifecycle: hook.map(|(hook, sidecar)| TaskLifecycle { hook, sidecar }),
        config: config.into_iter().collect(),
        restart_policy: RestartPolicy {
            attempts: 0,
            interval: 60 * SECOND,
            delay: SECOND / 10,
            mode: "fail".into(),
            render_templates: false,
        },
        log_config: LogConfig { max_files: 3, max_file_size_mb: 1, disabled: false },
        resources: Resources { cpu: 100, memory_mb: 64, ..Resources::default() },
        kill_timeout: 5 * SECOND,
        ..Task::default()
    }
}

pub fn job(id: &str, kind: JobType, tasks: Vec<Task>) -> Arc<Job> {
    let group = TaskGroup {
        name: "g".into(),
        count: 1,
        tasks: tasks.into_iter().map(Arc::new).collect(),
        ..TaskGroup::default()
    };
    Arc::new(Job {
        id: id.into(),
        name: id.into(),
        namespace: "default".into(),
        kind,
        create_index: 7,
        task_groups: vec![Arc::new(group)].into(),
        ..Job::default()
    })
}
