//! What each command does, one file per kind of row.

mod admin;
mod allocs;
mod deployments;
mod evals;
mod gc;
mod jobs;
mod launch;
mod nodes;
mod plan;
mod reschedule;

use crate::codec::{Refusal, Reply};
use crate::command::Body;
use crate::txn::Txn;

pub use reschedule::reschedule_eligible;

/// What applying a command gives.
pub(crate) type Applied = Result<Reply, Refusal>;

/// Applies a command's body. On a refusal the caller throws the changes away.
pub(crate) fn apply(txn: &mut Txn<'_>, body: Body) -> Applied {
    match body {
        Body::RegisterJob(c) => jobs::register(txn, *c),
        Body::DeregisterJob(c) => jobs::deregister(txn, c),
        Body::UpsertEvals(c) => evals::upsert(txn, c),
        Body::ApplyPlan(c) => plan::apply(txn, *c),
        Body::UpdateAllocs(c) => allocs::update(txn, c),
        Body::AllocTransitions(c) => allocs::transition(txn, c),
        Body::UpsertNode(c) => nodes::upsert(txn, *c),
        Body::NodeStatus(c) => nodes::status(txn, c),
        Body::NodeEligibility(c) => nodes::eligibility(txn, c),
        Body::NodeDrain(c) => nodes::drain(txn, c),
        Body::NodeEvents(c) => nodes::events(txn, c),
        Body::DeleteNodes(c) => nodes::delete(txn, c),
        Body::DeploymentStatus(c) => deployments::status(txn, *c),
        Body::PromoteDeployment(c) => deployments::promote(txn, c),
        Body::AllocHealth(c) => deployments::health(txn, *c),
        Body::JobStability(c) => jobs::stability(txn, &c),
        Body::ScaleJob(c) => jobs::scale(txn, c),
        Body::JobVersionTag(c) => jobs::tag(txn, c),
        Body::Services(c) => admin::services(txn, c),
        Body::LaunchPeriodic(c) => launch::periodic(txn, *c),
        Body::DispatchJob(c) => launch::dispatch(txn, *c),
        Body::SchedulerConfig(c) => admin::scheduler_config(txn, c),
        Body::UpsertNamespaces(c) => admin::upsert_namespaces(txn, c),
        Body::DeleteNamespaces(c) => admin::delete_namespaces(txn, &c),
        Body::UpsertNodePools(c) => admin::upsert_pools(txn, c),
        Body::DeleteNodePools(c) => admin::delete_pools(txn, &c),
        Body::Gc(c) => gc::collect(txn, c),
    }
}

/// Several problems as the peer's error lists print them.
pub(crate) fn multi_error(problems: &[String]) -> String {
    let count = problems.len();
    let noun = if count == 1 { "1 error".to_owned() } else { format!("{count} errors") };
    let mut text = format!("{noun} occurred:\n");
    for problem in problems {
        text.push_str("\t* ");
        text.push_str(problem);
        text.push('\n');
    }
    text.push('\n');
    text
}
