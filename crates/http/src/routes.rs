//! The table of routes: method, path, what it demands, what answers it.
//!
//! The first row whose path and method fit wins, so a path with a verb stands before the one without, and what has a
//! fixed word stands before what has a placeholder there. Source: `compat/http-api.tsv`.

use crate::answer::Answer;
use crate::error::HttpError;
use crate::operations::{
    absent, agent, client, deployments, events, exec, jobs as job, keyring, launch, metrics, names, nodes, operator,
    pages, search,
};
use crate::pipeline::{Call, Capability};
use crate::reads::{Read, cluster, jobs, work};
use crate::socket::Socket;
use Capability::{
    AgentRead, AgentWrite, AllocExec, AllocLifecycle, Anonymous, Management, NodeRead, NodeWrite, OperatorRead,
    OperatorWrite, ReadFs, ReadJob, ReadLogs, SubmitJob,
};
use futures::future::BoxFuture;

/// What answers a request that is no plain read.
pub type Operation = fn(Call) -> BoxFuture<'static, Result<Answer, HttpError>>;

/// What serves an open websocket.
pub type SocketOperation = fn(Call, Socket) -> BoxFuture<'static, ()>;

/// What answers a route.
#[derive(Clone, Copy)]
pub enum Handler {
    Read(Read),
    Operation(Operation),
    Socket(SocketOperation),
}

/// Where a route is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// By the agent that was asked.
    Agent,
    /// By a server; an agent without one forwards.
    Server,
}

/// One row of the table.
pub struct Route {
    pub methods: &'static [&'static str],
    pub path: &'static str,
    pub capability: Capability,
    pub place: Place,
    /// Pages from elsewhere may read it. Source: wire-notes section 2.
    pub cors: bool,
    pub handler: Handler,
}

const GET: &[&str] = &["GET"];
const PUT: &[&str] = &["PUT", "POST"];
const ONLY_PUT: &[&str] = &["PUT"];
const ONLY_POST: &[&str] = &["POST"];
const DELETE: &[&str] = &["DELETE"];
/// Routes that do not look at the method.
const ANY: &[&str] = &["GET", "PUT", "POST"];

const fn read(path: &'static str, capability: Capability, read: Read) -> Route {
    Route { methods: GET, path, capability, place: Place::Server, cors: false, handler: Handler::Read(read) }
}

const fn run(methods: &'static [&'static str], path: &'static str, capability: Capability, run: Operation) -> Route {
    Route { methods, path, capability, place: Place::Server, cors: false, handler: Handler::Operation(run) }
}

const fn socket(path: &'static str, capability: Capability, run: SocketOperation) -> Route {
    Route { methods: GET, path, capability, place: Place::Server, cors: false, handler: Handler::Socket(run) }
}

impl Route {
    /// Answered by the agent that was asked.
    const fn here(mut self) -> Route {
        self.place = Place::Agent;
        self
    }

    /// Pages from elsewhere may read it.
    const fn cors(mut self) -> Route {
        self.cors = true;
        self
    }

    /// With other methods.
    const fn by(mut self, methods: &'static [&'static str]) -> Route {
        self.methods = methods;
        self
    }
}

/// An asynchronous function as an [`Operation`].
macro_rules! op {
    ($function:path) => {
        |call| Box::pin($function(call))
    };
}

/// An asynchronous function as a [`SocketOperation`].
macro_rules! ws {
    ($function:path) => {
        |call, socket| Box::pin($function(call, socket))
    };
}

/// Every route.
pub static ROUTES: &[Route] = &[
    // Jobs.
    read("/v1/jobs", ReadJob, jobs::LIST),
    run(PUT, "/v1/jobs", SubmitJob, op!(job::register)),
    run(PUT, "/v1/jobs/parse", SubmitJob, op!(job::parse)).here(),
    read("/v1/jobs/statuses", ReadJob, jobs::STATUSES).by(&["GET", "POST"]),
    run(PUT, "/v1/validate/job", ReadJob, op!(job::validate)),
    run(PUT, "/v1/job/*/evaluate", SubmitJob, op!(job::evaluate)),
    read("/v1/job/*/allocations", ReadJob, jobs::ALLOCATIONS),
    read("/v1/job/*/evaluations", ReadJob, jobs::EVALUATIONS),
    read("/v1/job/*/deployments", ReadJob, jobs::DEPLOYMENTS),
    read("/v1/job/*/deployment", ReadJob, jobs::DEPLOYMENT),
    run(PUT, "/v1/job/*/periodic/force", SubmitJob, op!(launch::force)),
    run(PUT, "/v1/job/*/plan", SubmitJob, op!(job::plan)),
    read("/v1/job/*/summary", ReadJob, jobs::SUMMARY).by(ANY),
    run(PUT, "/v1/job/*/dispatch/payload", SubmitJob, op!(launch::dispatch_payload)),
    run(PUT, "/v1/job/*/dispatch", SubmitJob, op!(launch::dispatch)),
    read("/v1/job/*/versions", ReadJob, jobs::VERSIONS).by(ANY),
    run(PUT, "/v1/job/*/versions/:/tag", SubmitJob, op!(job::tag)),
    run(DELETE, "/v1/job/*/versions/:/tag", SubmitJob, op!(job::untag)),
    run(PUT, "/v1/job/*/revert", SubmitJob, op!(job::revert)),
    run(PUT, "/v1/job/*/stable", SubmitJob, op!(job::stable)),
    read("/v1/job/*/scale", ReadJob, jobs::SCALE),
    run(PUT, "/v1/job/*/scale", SubmitJob, op!(job::scale)),
    read("/v1/job/*/services", ReadJob, jobs::SERVICES),
    read("/v1/job/*/submission", ReadJob, jobs::SUBMISSION),
    read("/v1/job/*/actions", ReadJob, jobs::ACTIONS),
    socket("/v1/job/*/action", AllocExec, ws!(exec::action)),
    read("/v1/job/*", ReadJob, jobs::ONE),
    run(PUT, "/v1/job/*", SubmitJob, op!(job::register_named)),
    run(DELETE, "/v1/job/*", SubmitJob, op!(job::deregister)),
    // Nodes.
    read("/v1/nodes", NodeRead, cluster::NODES),
    read("/v1/node/pools", NodeRead, cluster::POOLS),
    run(PUT, "/v1/node/pools", NodeWrite, op!(names::write_pool)),
    read("/v1/node/pool/*/nodes", NodeRead, cluster::POOL_NODES),
    read("/v1/node/pool/*/jobs", NodeRead, cluster::POOL_JOBS),
    read("/v1/node/pool/*", NodeRead, cluster::POOL),
    run(PUT, "/v1/node/pool/*", NodeWrite, op!(names::write_named_pool)),
    run(DELETE, "/v1/node/pool/*", NodeWrite, op!(names::delete_pool)),
    run(PUT, "/v1/node/:/evaluate", NodeWrite, op!(nodes::evaluate)),
    read("/v1/node/:/allocations", NodeRead, cluster::NODE_ALLOCATIONS),
    run(PUT, "/v1/node/:/drain", NodeWrite, op!(nodes::drain)),
    run(PUT, "/v1/node/:/eligibility", NodeWrite, op!(nodes::eligibility)),
    run(PUT, "/v1/node/:/purge", NodeWrite, op!(nodes::purge)),
    read("/v1/node/:", NodeRead, cluster::NODE),
    // Allocations, evaluations, deployments.
    read("/v1/allocations", ReadJob, work::ALLOCATIONS),
    run(PUT, "/v1/allocation/:/stop", AllocLifecycle, op!(deployments::stop_alloc)),
    read("/v1/allocation/:/services", ReadJob, work::ALLOCATION_SERVICES),
    run(ANY, "/v1/allocation/:/checks", ReadJob, op!(client::alloc_checks)),
    read("/v1/allocation/:", ReadJob, work::ALLOCATION),
    read("/v1/evaluations", ReadJob, work::EVALUATIONS),
    run(DELETE, "/v1/evaluations", Management, op!(deployments::delete_evals)),
    read("/v1/evaluations/count", ReadJob, work::EVALUATIONS_COUNT),
    read("/v1/evaluation/:/allocations", ReadJob, work::EVALUATION_ALLOCATIONS),
    read("/v1/evaluation/:", ReadJob, work::EVALUATION),
    read("/v1/deployments", ReadJob, work::DEPLOYMENTS),
    read("/v1/deployment/allocations/:", ReadJob, work::DEPLOYMENT_ALLOCATIONS),
    run(PUT, "/v1/deployment/fail/:", SubmitJob, op!(deployments::fail)),
    run(PUT, "/v1/deployment/pause/:", SubmitJob, op!(deployments::pause)),
    run(PUT, "/v1/deployment/promote/:", SubmitJob, op!(deployments::promote)),
    run(PUT, "/v1/deployment/allocation-health/:", SubmitJob, op!(deployments::health)),
    run(PUT, "/v1/deployment/unblock/:", SubmitJob, op!(deployments::unblock)),
    read("/v1/deployment/:", ReadJob, work::DEPLOYMENT),
    // What nodes know.
    run(ANY, "/v1/client/allocation/:/stats", ReadJob, op!(client::alloc_stats)).cors(),
    run(ANY, "/v1/client/allocation/:/checks", ReadJob, op!(client::alloc_checks)).cors(),
    socket("/v1/client/allocation/:/exec", AllocExec, ws!(exec::exec)).cors(),
    run(ANY, "/v1/client/allocation/:/snapshot", ReadFs, op!(client::alloc_snapshot)).cors(),
    run(PUT, "/v1/client/allocation/:/restart", AllocLifecycle, op!(client::restart)).cors(),
    run(ANY, "/v1/client/allocation/:/gc", SubmitJob, op!(client::alloc_gc)).cors(),
    run(PUT, "/v1/client/allocation/:/signal", AllocLifecycle, op!(client::signal)).cors(),
    run(ANY, "/v1/client/allocation/:/pause", ReadJob, op!(absent::pause)).cors(),
    run(ANY, "/v1/client/fs/ls/:", ReadFs, op!(client::list)).cors(),
    run(ANY, "/v1/client/fs/stat/:", ReadFs, op!(client::stat)).cors(),
    run(ANY, "/v1/client/fs/readat/:", ReadFs, op!(client::read_at)).cors(),
    run(ANY, "/v1/client/fs/cat/:", ReadFs, op!(client::cat)).cors(),
    run(ANY, "/v1/client/fs/stream/:", ReadFs, op!(client::stream)).cors(),
    run(ANY, "/v1/client/fs/logs/:", ReadLogs, op!(client::logs)).cors(),
    run(ANY, "/v1/client/gc", NodeWrite, op!(client::node_gc)),
    run(ANY, "/v1/client/stats", NodeRead, op!(client::node_stats)).cors(),
    run(GET, "/v1/client/metadata", NodeRead, op!(client::metadata)).cors(),
    run(ONLY_POST, "/v1/client/metadata", NodeWrite, op!(client::apply_metadata)).cors(),
    run(GET, "/v1/client/identity", NodeRead, op!(absent::node_identity)).cors(),
    run(PUT, "/v1/client/identity/renew", NodeWrite, op!(absent::node_identity)).cors(),
    // Services, scaling, namespaces, search.
    read("/v1/services", ReadJob, cluster::SERVICES),
    run(DELETE, "/v1/service/:/:", SubmitJob, op!(names::delete_service)),
    read("/v1/service/:", ReadJob, cluster::SERVICE),
    read("/v1/scaling/policies", ReadJob, cluster::SCALING_POLICIES),
    read("/v1/scaling/policy/:", ReadJob, cluster::SCALING_POLICY),
    read("/v1/namespaces", ReadJob, cluster::NAMESPACES),
    run(PUT, "/v1/namespace", Management, op!(names::write_namespace)),
    read("/v1/namespace/*", ReadJob, cluster::NAMESPACE),
    run(PUT, "/v1/namespace/*", Management, op!(names::write_named_namespace)),
    run(DELETE, "/v1/namespace/*", Management, op!(names::delete_namespace)),
    run(PUT, "/v1/search", ReadJob, op!(search::prefix)),
    run(PUT, "/v1/search/fuzzy", ReadJob, op!(search::fuzzy)),
    run(GET, "/v1/event/stream", ReadJob, op!(events::stream)),
    // The agent and the servers.
    run(GET, "/v1/agent/self", AgentRead, op!(agent::own)).here(),
    run(PUT, "/v1/agent/join", AgentWrite, op!(agent::join)).here(),
    run(GET, "/v1/agent/members", NodeRead, op!(agent::members)),
    run(PUT, "/v1/agent/force-leave", AgentWrite, op!(agent::force_leave)).here(),
    run(GET, "/v1/agent/servers", AgentRead, op!(agent::servers)).here(),
    run(PUT, "/v1/agent/servers", AgentWrite, op!(agent::set_servers)).here(),
    run(GET, "/v1/agent/schedulers", AgentRead, op!(agent::schedulers)).here(),
    run(GET, "/v1/agent/schedulers/config", AgentRead, op!(agent::scheduler_workers)).here(),
    run(PUT, "/v1/agent/schedulers/config", AgentWrite, op!(agent::set_scheduler_workers)).here(),
    run(ANY, "/v1/agent/keyring/:", AgentWrite, op!(absent::gossip_keys)).here(),
    run(GET, "/v1/agent/health", Anonymous, op!(agent::health)).here(),
    run(GET, "/v1/agent/host", AgentRead, op!(agent::host)).here(),
    run(PUT, "/v1/agent/reload", AgentWrite, op!(agent::reload)).here(),
    run(ANY, "/v1/agent/monitor", AgentRead, op!(agent::monitor)).here(),
    run(ANY, "/v1/agent/monitor/export", AgentRead, op!(absent::monitor_export)).here(),
    run(ANY, "/v1/agent/pprof/:", AgentWrite, op!(absent::profile)).here(),
    run(GET, "/v1/status/leader", Anonymous, op!(agent::leader)),
    run(GET, "/v1/status/peers", Anonymous, op!(agent::peers)),
    run(GET, "/v1/regions", Anonymous, op!(agent::regions)),
    run(GET, "/v1/metrics", Anonymous, op!(metrics::read)).here(),
    // Operators.
    run(GET, "/v1/operator/raft/configuration", Management, op!(operator::log_members)),
    run(DELETE, "/v1/operator/raft/peer", Management, op!(operator::remove_peer)),
    run(PUT, "/v1/operator/raft/transfer-leadership", Management, op!(operator::transfer)),
    run(GET, "/v1/operator/autopilot/configuration", OperatorRead, op!(operator::autopilot)),
    run(ONLY_PUT, "/v1/operator/autopilot/configuration", OperatorWrite, op!(operator::set_autopilot)),
    run(GET, "/v1/operator/autopilot/health", OperatorRead, op!(operator::autopilot_health)),
    read("/v1/operator/scheduler/configuration", OperatorRead, cluster::SCHEDULER_CONFIG),
    run(PUT, "/v1/operator/scheduler/configuration", OperatorWrite, op!(operator::set_schedulers)),
    run(GET, "/v1/operator/keyring/keys", OperatorRead, op!(keyring::list)),
    run(PUT, "/v1/operator/keyring/rotate", OperatorWrite, op!(keyring::rotate)),
    run(DELETE, "/v1/operator/keyring/key/:", OperatorWrite, op!(keyring::remove)),
    run(&["GET", "PUT", "POST"], "/v1/operator/snapshot", Management, op!(absent::log_snapshot)),
    run(GET, "/v1/operator/upgrade-check/vault-workload-identity", OperatorRead, op!(absent::vault_upgrade)),
    run(GET, "/v1/operator/license", Anonymous, op!(absent::no_license)).here(),
    run(ONLY_PUT, "/v1/operator/license", Anonymous, op!(absent::enterprise)).here(),
    run(ONLY_POST, "/v1/operator/utilization", Anonymous, op!(absent::enterprise)).here(),
    run(ONLY_PUT, "/v1/system/gc", Management, op!(operator::collect)),
    run(ONLY_PUT, "/v1/system/reconcile/summaries", Management, op!(operator::reconcile)),
    // Keys and pages.
    run(GET, "/.well-known/jwks.json", Anonymous, op!(keyring::public_keys)),
    run(GET, "/.well-known/openid-configuration", Anonymous, op!(absent::openid)).here(),
    run(ANY, "/", Anonymous, op!(pages::root)).here(),
    run(GET, "/ui", Anonymous, op!(pages::page)).here(),
    run(GET, "/ui/", Anonymous, op!(pages::page)).here(),
    run(GET, "/ui/*", Anonymous, op!(pages::page)).here(),
    // Areas that are not here.
    run(&["GET", "PUT", "POST", "DELETE"], "/v1/acl/*", Anonymous, op!(absent::acl)).here(),
    run(GET, "/v1/vars", ReadJob, op!(absent::empty_list)).cors(),
    run(GET, "/v1/var/*", ReadJob, op!(absent::no_variable)).cors(),
    run(&["PUT", "POST", "DELETE"], "/v1/var/*", SubmitJob, op!(absent::write_variable)).cors(),
    run(GET, "/v1/volumes", ReadJob, op!(absent::volumes)),
    run(PUT, "/v1/volumes", SubmitJob, op!(absent::write_csi)),
    run(GET, "/v1/volumes/external", ReadJob, op!(absent::ask_plugin)),
    run(GET, "/v1/volumes/snapshot", ReadJob, op!(absent::ask_plugin)),
    run(&["PUT", "POST", "DELETE"], "/v1/volumes/snapshot", SubmitJob, op!(absent::write_csi)),
    run(ANY, "/v1/volumes/claims", ReadJob, op!(absent::empty_list)),
    run(DELETE, "/v1/volumes/claim/:", SubmitJob, op!(absent::write_host_volume)),
    run(PUT, "/v1/volume/host/create", SubmitJob, op!(absent::write_host_volume)),
    run(PUT, "/v1/volume/host/register", SubmitJob, op!(absent::write_host_volume)),
    run(GET, "/v1/volume/host/:", ReadJob, op!(absent::no_volume)),
    run(DELETE, "/v1/volume/host/:", SubmitJob, op!(absent::write_host_volume)),
    run(GET, "/v1/volume/csi/*", ReadJob, op!(absent::no_volume)),
    run(&["PUT", "DELETE"], "/v1/volume/csi/*", SubmitJob, op!(absent::write_csi)),
    run(GET, "/v1/plugins", ReadJob, op!(absent::empty_list)),
    run(GET, "/v1/plugin/csi/*", ReadJob, op!(absent::no_plugin)),
    run(&["GET", "PUT", "POST", "DELETE"], "/v1/sentinel/*", Anonymous, op!(absent::enterprise)).here(),
    run(GET, "/v1/quotas", Anonymous, op!(absent::enterprise)).here(),
    run(GET, "/v1/quota-usages", Anonymous, op!(absent::enterprise)).here(),
    run(PUT, "/v1/quota", Anonymous, op!(absent::enterprise)).here(),
    run(&["GET", "PUT", "POST", "DELETE"], "/v1/quota/*", Anonymous, op!(absent::enterprise)).here(),
    run(GET, "/v1/recommendations", Anonymous, op!(absent::enterprise)).here(),
    run(PUT, "/v1/recommendations/apply", Anonymous, op!(absent::enterprise)).here(),
    run(PUT, "/v1/recommendation", Anonymous, op!(absent::enterprise)).here(),
    run(GET, "/v1/recommendation/:", Anonymous, op!(absent::enterprise)).here(),
];
