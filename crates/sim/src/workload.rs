//! Jobs for measurements and simulations, in the submitted form.

use serde_json::{Value, json};

/// A task group's worth of identical raw_exec tasks, sized so that a thousand fit a small machine.
#[derive(Debug, Clone)]
pub struct Workload {
    pub id: String,
    /// "batch" or "service".
    pub kind: &'static str,
    pub count: u64,
    pub command: &'static str,
    pub args: Vec<&'static str>,
}

impl Workload {
    /// Tasks that end at once.
    pub fn one_shot(id: &str, count: u64) -> Workload {
        Workload { id: id.to_string(), kind: "batch", count, command: "/bin/true", args: Vec::new() }
    }

    /// Tasks that run until they are stopped, and end at once then.
    pub fn sleeping(id: &str, count: u64) -> Workload {
        Workload { id: id.to_string(), kind: "batch", count, command: "/bin/sleep", args: vec!["86400"] }
    }

    /// The job.
    pub fn job(&self) -> Value {
        json!({
            "ID": self.id,
            "Name": self.id,
            "Type": self.kind,
            "Datacenters": ["*"],
            "TaskGroups": [{
                "Name": "g",
                "Count": self.count,
                "EphemeralDisk": {"SizeMB": 11},
                "RestartPolicy": {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000_i64, "Delay": 1_000_000_000},
                "Tasks": [{
                    "Name": "t",
                    "Driver": "raw_exec",
                    "Config": {"command": self.command, "args": self.args},
                    "Resources": {"CPU": 1, "MemoryMB": 10},
                    "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 10},
                }],
            }],
        })
    }
}
