//! The deployment: the watched change of a service job from one version to the next.

use crate::ids::{AllocId, DeploymentId};
use crate::values::{Name, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a deployment stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeploymentState {
    #[default]
    Running,
    Paused,
    Failed,
    Successful,
    Cancelled,
    Initializing,
    Pending,
    Blocked,
    Unblocking,
}

impl DeploymentState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            DeploymentState::Running => "running",
            DeploymentState::Paused => "paused",
            DeploymentState::Failed => "failed",
            DeploymentState::Successful => "successful",
            DeploymentState::Cancelled => "cancelled",
            DeploymentState::Initializing => "initializing",
            DeploymentState::Pending => "pending",
            DeploymentState::Blocked => "blocked",
            DeploymentState::Unblocking => "unblocking",
        }
    }

    /// Still being worked on.
    pub fn is_active(self) -> bool {
        !matches!(self, DeploymentState::Failed | DeploymentState::Successful | DeploymentState::Cancelled)
    }
}

/// The watched change of a job from one version to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deployment {
    pub id: DeploymentId,
    pub namespace: Name,
    pub job_id: Name,
    pub job_version: u64,
    pub job_modify_index: u64,
    pub job_spec_modify_index: u64,
    pub job_create_index: u64,
    pub is_multiregion: bool,
    pub task_groups: BTreeMap<String, DeploymentGroup>,
    pub status: DeploymentState,
    pub status_description: String,
    pub eval_priority: i64,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: Nanos,
    pub modify_time: Nanos,
}

/// Progress of one group of a deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeploymentGroup {
    pub auto_revert: bool,
    pub auto_promote: bool,
    pub progress_deadline: Nanos,
    pub require_progress_by: Option<Nanos>,
    pub promoted: bool,
    pub placed_canaries: Vec<AllocId>,
    pub desired_canaries: i64,
    pub desired_total: i64,
    pub placed_allocs: i64,
    pub healthy_allocs: i64,
    pub unhealthy_allocs: i64,
}

impl Deployment {
    /// Still being worked on.
    pub fn is_active(&self) -> bool {
        self.status.is_active()
    }

    /// Some group waits for somebody to promote its canaries.
    pub fn requires_promotion(&self) -> bool {
        self.is_active() && self.task_groups.values().any(|g| g.desired_canaries > 0 && !g.promoted)
    }

    /// Every group that has canaries promotes them by itself.
    pub fn has_auto_promote(&self) -> bool {
        !self.task_groups.is_empty()
            && self.task_groups.values().filter(|g| g.desired_canaries > 0).all(|g| g.auto_promote)
    }
}

/// A change of a deployment's status as a plan or the watcher wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentUpdate {
    pub id: DeploymentId,
    pub status: DeploymentState,
    pub description: String,
}
