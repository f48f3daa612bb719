//! The texts that clients match.

pub(crate) const NOT_NEEDED: &str = "alloc not needed due to job update";
pub(crate) const RECONNECTED: &str = "alloc not needed due to disconnected client reconnect";
pub(crate) const MIGRATING: &str = "alloc is being migrated";
pub(crate) const UPDATING: &str = "alloc is being updated due to job update";
pub(crate) const LOST: &str = "alloc is lost since its node is down";
pub(crate) const UNKNOWN: &str = "alloc is unknown since its node is disconnected";
pub(crate) const TAINTED: &str = "alloc not needed as node is tainted";
pub(crate) const WAS_RESCHEDULED: &str = "alloc was rescheduled because it failed";

/// The last reschedule found a node.
pub(crate) const RESCHEDULED: &str = "ok";

pub(crate) const BLOCKED_PLAN: &str = "created due to placement conflicts";
pub(crate) const BLOCKED_FAILED: &str = "created to place remaining allocations";
pub(crate) const DELAYED_RESCHEDULE: &str = "created for delayed rescheduling";
pub(crate) const DISCONNECT_TIMEOUT: &str = "created for delayed disconnect timeout";

pub(crate) const DEPLOYMENT_RUNNING: &str = "Deployment is running";
pub(crate) const DEPLOYMENT_MANUAL: &str = "Deployment is running but requires manual promotion";
pub(crate) const DEPLOYMENT_AUTO: &str = "Deployment is running pending automatic promotion";
pub(crate) const DEPLOYMENT_SUCCESSFUL: &str = "Deployment completed successfully";
pub(crate) const DEPLOYMENT_STOPPED: &str = "Cancelled because job is stopped";
pub(crate) const DEPLOYMENT_NEWER: &str = "Cancelled due to newer version of job";
