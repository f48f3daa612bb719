//! The commands that change the tables. Each carries the leader's time and whatever identifiers it needs, so that
//! applying it reads no clock and draws no random number.

use crate::rows::{IdSeed, JobSubmission, Namespace, NodePool, ScalingEvent, SchedulerConfig};
use herdsman_model::{
    AllocId, AllocStop, Allocation, Deployment, DeploymentId, DeploymentState, DeploymentUpdate, DesiredTransition,
    DrainStrategy, Eligibility, EvalId, Evaluation, Job, Nanos, Node, NodeEvent, NodeId, NodeStatus,
};
use herdsman_proto::{AllocUpdate, ServiceRegistration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One change of the tables, with the time its proposer saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// The leader's time. Applying never goes below the last time applied.
    pub now: Nanos,
    pub body: Body,
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident($type:ty) = $kind:literal),+ $(,)?) => {
        /// What a command does. Each variant's number is its stored kind and never changes.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Body { $($(#[$doc])* $name($type)),+ }

        impl Body {
            /// The stored kind.
            pub fn kind(&self) -> u32 {
                match self { $(Body::$name(_) => $kind),+ }
            }

            /// The name, for logs and errors.
            pub fn name(&self) -> &'static str {
                match self { $(Body::$name(_) => stringify!($name)),+ }
            }

            pub(crate) fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
                match self { $(Body::$name(body) => serde_json::to_vec(body)),+ }
            }

            pub(crate) fn from_json(kind: u32, json: &[u8]) -> Option<Result<Body, serde_json::Error>> {
                match kind {
                    $($kind => Some(serde_json::from_slice(json).map(Body::$name)),)+
                    _ => None,
                }
            }
        }
    };
}

bodies! {
    /// Registers a job, or a new version of it.
    RegisterJob(Box<RegisterJob>) = 1,
    /// Stops a job, or removes it.
    DeregisterJob(DeregisterJob) = 2,
    /// Writes evaluations as they are.
    UpsertEvals(UpsertEvals) = 3,
    /// Carries out what a scheduler planned.
    ApplyPlan(Box<ApplyPlan>) = 4,
    /// Takes over what nodes say of their allocations.
    UpdateAllocs(UpdateAllocs) = 5,
    /// Asks for allocations to be moved or stopped.
    AllocTransitions(AllocTransitions) = 6,
    /// A node registers or its fingerprint changed.
    UpsertNode(Box<UpsertNode>) = 7,
    /// Nodes come and go.
    NodeStatus(SetNodeStatus) = 8,
    /// Whether new allocations may be placed on a node.
    NodeEligibility(SetNodeEligibility) = 9,
    /// Starts, changes, ends or cancels a drain.
    NodeDrain(SetNodeDrain) = 10,
    /// Notes events of nodes.
    NodeEvents(NodeEvents) = 11,
    /// Removes nodes.
    DeleteNodes(DeleteNodes) = 12,
    /// Changes the status of a deployment.
    DeploymentStatus(Box<SetDeploymentStatus>) = 13,
    /// Promotes canaries.
    PromoteDeployment(PromoteDeployment) = 14,
    /// Sets the health of allocations of a deployment.
    AllocHealth(Box<AllocHealth>) = 15,
    /// Marks a job version as stable or not.
    JobStability(JobStability) = 16,
    /// Changes the count of a group, or only notes an event.
    ScaleJob(ScaleJob) = 17,
    /// Names a job version, or takes the name away.
    JobVersionTag(JobVersionTag) = 18,
    /// Services of the native provider came or went.
    Services(ServiceUpdates) = 19,
    /// Launches a periodic job.
    LaunchPeriodic(Box<LaunchPeriodic>) = 20,
    /// Launches a child of a parameterized job.
    DispatchJob(Box<DispatchJob>) = 21,
    /// Sets how the schedulers decide.
    SchedulerConfig(SetSchedulerConfig) = 22,
    /// Creates or changes namespaces.
    UpsertNamespaces(UpsertNamespaces) = 23,
    /// Removes namespaces.
    DeleteNamespaces(DeleteNamed) = 24,
    /// Creates or changes node pools.
    UpsertNodePools(UpsertNodePools) = 25,
    /// Removes node pools.
    DeleteNodePools(DeleteNamed) = 26,
    /// Collects what is over.
    Gc(Gc) = 27,
}

/// Registers a job, or a new version of it. The job is canonical and admitted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegisterJob {
    pub job: Job,
    pub submission: Option<JobSubmission>,
    /// Make an evaluation; its priority if not the job's. None for periodic and parameterized parents.
    pub eval: Option<EvalRequest>,
    /// Refuse unless the job's modify index is this (0: unless it does not exist).
    pub enforce_index: Option<u64>,
    /// Versions to keep besides tagged ones.
    pub keep_versions: u64,
    pub seed: IdSeed,
}

/// The evaluation that comes with a change of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EvalRequest {
    /// 0: the job's.
    pub priority: i64,
    pub triggered_by: herdsman_model::Trigger,
}

/// Stops a job, or removes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeregisterJob {
    pub namespace: String,
    pub job_id: String,
    pub purge: bool,
    pub no_shutdown_delay: bool,
    /// 0: the job's.
    pub eval_priority: i64,
    pub seed: IdSeed,
}

/// Writes evaluations as they are; those that exist are replaced.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpsertEvals {
    pub evals: Vec<Evaluation>,
    /// Allocations these evaluations follow up or reschedule.
    pub transitions: BTreeMap<AllocId, DesiredTransition>,
}

/// Carries out what a scheduler planned. Nodes that cannot take their part are left out and named in the reply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApplyPlan {
    pub eval_id: EvalId,
    /// Everything or nothing.
    pub all_at_once: bool,
    pub stops: Vec<AllocStop>,
    pub preemptions: Vec<AllocStop>,
    /// New allocations and in-place updates.
    #[serde(with = "crate::packed")]
    pub placements: Vec<Arc<Allocation>>,
    pub deployment: Option<Deployment>,
    pub deployment_updates: Vec<DeploymentUpdate>,
    /// Written when every node took its part: the evaluation's end, blocked and follow-up evaluations.
    pub evals: Vec<Evaluation>,
    pub seed: IdSeed,
}

/// Takes over what nodes say of their allocations. Batches of several nodes may be merged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateAllocs {
    pub updates: Vec<AllocUpdate>,
    pub seed: IdSeed,
}

/// Asks for allocations to be moved or stopped; an evaluation is made per job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocTransitions {
    pub transitions: BTreeMap<AllocId, DesiredTransition>,
    /// Why the evaluations are made; none: make none.
    pub triggered_by: Option<herdsman_model::Trigger>,
    pub seed: IdSeed,
}

/// A node registers or its fingerprint changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpsertNode {
    pub node: Node,
    /// The node is in session: an initializing or down one becomes ready.
    pub ready: bool,
    pub seed: IdSeed,
}

/// Nodes come and go.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SetNodeStatus {
    pub node_ids: Vec<NodeId>,
    pub status: NodeStatus,
    pub event: Option<NodeEvent>,
    pub seed: IdSeed,
}

/// Whether new allocations may be placed on a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SetNodeEligibility {
    pub node_id: NodeId,
    pub eligibility: Eligibility,
    pub event: Option<NodeEvent>,
    pub seed: IdSeed,
}

/// Starts, changes, ends or cancels a drain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SetNodeDrain {
    pub node_id: NodeId,
    /// None ends or cancels the drain.
    pub drain: Option<DrainStrategy>,
    /// The drain ended by itself rather than by a user.
    pub complete: bool,
    pub mark_eligible: bool,
    pub meta: BTreeMap<String, String>,
    pub accessor_id: String,
    pub event: Option<NodeEvent>,
    pub seed: IdSeed,
}

/// Notes events of nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeEvents {
    pub events: BTreeMap<NodeId, Vec<NodeEvent>>,
}

/// Removes nodes; evaluations are made for the jobs they ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeleteNodes {
    pub node_ids: Vec<NodeId>,
    pub seed: IdSeed,
}

/// Changes the status of a deployment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SetDeploymentStatus {
    pub deployment_id: DeploymentId,
    pub status: DeploymentState,
    pub description: String,
    /// A job version to register again because of it.
    pub revert_to: Option<u64>,
    /// Make an evaluation.
    pub eval: bool,
    pub keep_versions: u64,
    pub seed: IdSeed,
}

/// Promotes canaries of some groups, or of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromoteDeployment {
    pub deployment_id: DeploymentId,
    /// Empty: all.
    pub groups: Vec<String>,
    pub seed: IdSeed,
}

/// Sets the health of allocations of a deployment; may change the deployment's status with it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocHealth {
    pub deployment_id: DeploymentId,
    pub marks: crate::rows::HealthMarks,
    pub status: Option<(DeploymentState, String)>,
    pub revert_to: Option<u64>,
    pub keep_versions: u64,
    pub seed: IdSeed,
}

/// Marks a job version as stable or not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobStability {
    pub namespace: String,
    pub job_id: String,
    pub version: u64,
    pub stable: bool,
}

/// Changes the count of a group, or only notes an event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleJob {
    pub namespace: String,
    pub job_id: String,
    pub group: String,
    /// None: only the event is noted.
    pub count: Option<i64>,
    pub event: ScalingEvent,
    pub keep_versions: u64,
    pub seed: IdSeed,
}

/// Names a job version, or takes the name away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobVersionTag {
    pub namespace: String,
    pub job_id: String,
    pub name: String,
    pub description: String,
    /// The version to name; none takes the name away.
    pub version: Option<u64>,
}

/// Services of the native provider came or went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceUpdates {
    pub register: Vec<ServiceRegistration>,
    pub deregister: Vec<String>,
    /// Only registrations of this namespace may go (a user's request); none: any.
    pub within: Option<String>,
}

/// Launches a periodic job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaunchPeriodic {
    pub namespace: String,
    pub job_id: String,
    /// The planned time.
    pub launch: Nanos,
    pub child: Job,
    /// Skip when an earlier child is not over.
    pub prohibit_overlap: bool,
    pub seed: IdSeed,
}

/// Launches a child of a parameterized job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DispatchJob {
    pub namespace: String,
    pub job_id: String,
    pub child: Job,
    /// A child launched with the same token before is returned instead.
    pub idempotency_token: String,
    /// Make an evaluation (a periodic child waits for its schedule).
    pub eval: bool,
    pub seed: IdSeed,
}

/// Sets how the schedulers decide.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SetSchedulerConfig {
    pub config: SchedulerConfig,
    /// Only when the stored modify index is this.
    pub cas: Option<u64>,
}

/// Creates or changes namespaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpsertNamespaces {
    pub namespaces: Vec<Namespace>,
}

/// Creates or changes node pools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpsertNodePools {
    pub pools: Vec<NodePool>,
}

/// Removes rows by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeleteNamed {
    pub names: Vec<String>,
    /// The region, for error texts.
    pub region: String,
}

/// Collects what is over. What is found to be still needed stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gc {
    pub evals: Vec<EvalId>,
    pub allocs: Vec<AllocId>,
    pub deployments: Vec<DeploymentId>,
    pub jobs: Vec<GcJob>,
    pub nodes: Vec<NodeId>,
    /// A user's request: evaluations go whatever their state.
    pub force_evals: bool,
}

/// A job to collect, if it was not changed since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GcJob {
    pub namespace: String,
    pub job_id: String,
    pub modify_index: u64,
}
