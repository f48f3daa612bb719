//! Operations of users: one method each on [`crate::Server`], with typed requests and answers.

mod admin;
mod deployments;
mod dispatch;
mod evals;
mod jobs;
mod nodes;
mod plan;
mod search;

pub use deployments::{DeploymentChanged, HealthRequest};
pub use dispatch::{DispatchRequest, Dispatched, MAX_PAYLOAD_BYTES};
pub use evals::EvalsDeleted;
pub use jobs::{
    DeregisterRequest, JobChanged, PreparedJob, REGISTRATION_DISABLED, RegisterRequest, RevertRequest, ScaleRequest,
    TagRequest,
};
pub use nodes::{AllocStopped, DrainRequest, NodeChanged, StopAllocRequest};
pub use plan::{PlanRequest, Planned};
pub use search::{SEARCH_CONTEXTS, SEARCH_LIMIT, SearchAnswer};
