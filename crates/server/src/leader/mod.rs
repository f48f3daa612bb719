//! What this server does while it leads. Every task starts from state and ends with leadership.

mod blocked;
mod broker;
mod collect;
mod deployments;
mod drain;
mod evals;
pub(crate) mod heartbeat;
pub(crate) mod periodic;
mod plans;
mod worker;

pub(crate) use collect::collect_all;
pub(crate) use deployments::revert_text;
pub(crate) use worker::seed_of;

use crate::server::Server;
use broker::Broker;
use heartbeat::Heartbeats;
use herdsman_state::SchedulerConfig;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// What the leader's tasks share with each other and with sessions.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    broker: Mutex<Broker>,
    /// Something can be handed out.
    work: Notify,
    /// The next deadline of the broker may be another one.
    deadline: Notify,
    pub plans: plans::Plans,
    pub heartbeats: Heartbeats,
}

impl Shared {
    fn broker(&self) -> MutexGuard<'_, Broker> {
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leads whenever the log says so, until the server stops.
pub(crate) async fn run(server: Server, mut stopped: watch::Receiver<bool>) {
    let mut leadership = server.inner.log.leadership();
    loop {
        let ended = tokio::select! {
            biased;
            () = crate::server::turned_true(&mut stopped) => true,
            gone = async { leadership.wait_for(|leadership| leadership.ready).await.is_err() } => gone,
        };
        if ended {
            return;
        }
        let term = leadership.borrow().term;
        tracing::info!(term, "leading");
        begin_cluster(&server).await;
        let mut tasks = lead(&server);
        let lost = |leadership: &herdsman_consensus::Leadership| !leadership.ready || leadership.term != term;
        tokio::select! {
            biased;
            () = crate::server::turned_true(&mut stopped) => {}
            () = async { drop(leadership.wait_for(lost).await) } => {}
            problem = first_end(&mut tasks) => tracing::error!(%problem, "a task of the leader ended; starting all of them again"),
        }
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        *server.inner.leader.broker() = Broker::default();
        server.inner.leader.heartbeats.clear();
        tracing::info!(term, "no longer leading");
    }
}

/// What a new cluster is told once, by its first leader.
async fn begin_cluster(server: &Server) {
    let now = server.snapshot().scheduler_config().clone();
    let (create_index, modify_index) = (now.create_index, now.modify_index);
    let wanted = SchedulerConfig { create_index, modify_index, ..server.config().scheduler.clone() };
    let untouched = create_index == modify_index;
    if !untouched || *now == wanted {
        return;
    }
    if let Err(error) = server.set_scheduler_config(wanted, Some(modify_index)).await {
        tracing::warn!(%error, "the configured scheduler settings could not be stored; the defaults hold");
    }
}

/// Waits until any of the leader's tasks ends, which none should.
async fn first_end(tasks: &mut JoinSet<()>) -> String {
    match tasks.join_next().await {
        Some(Err(error)) => error.to_string(),
        Some(Ok(())) | None => "it returned".to_owned(),
    }
}

/// Starts the leader's tasks.
fn lead(server: &Server) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    // What falls due is looked at before the first change, so nothing is missed between the two.
    tasks.spawn(evals::run(server.clone(), server.changes()));
    tasks.spawn(heartbeat::run(server.clone(), server.changes()));
    tasks.spawn(deployments::run(server.clone(), server.changes()));
    tasks.spawn(drain::run(server.clone(), server.changes()));
    tasks.spawn(periodic::run(server.clone(), server.changes()));
    tasks.spawn(collect::run(server.clone()));
    tasks.spawn(worker::crew(server.clone()));
    tasks
}

/// How long from now until a point in time.
pub(crate) fn until(server: &Server, at: i64) -> std::time::Duration {
    let left = at.saturating_sub(server.now());
    std::time::Duration::from_nanos(u64::try_from(left).unwrap_or(0))
}

/// Sleeps until a point in time; for ever when there is none.
pub(crate) async fn sleep_until(server: &Server, at: Option<i64>) {
    match at {
        Some(at) => server.world().clock.sleep(until(server, at)).await,
        None => std::future::pending().await,
    }
}

/// The next batch of changes; an empty hand when some were missed and state is to be read instead.
pub(crate) async fn next_batch(
    changes: &mut tokio::sync::broadcast::Receiver<std::sync::Arc<crate::feed::Batch>>,
) -> Option<std::sync::Arc<crate::feed::Batch>> {
    use tokio::sync::broadcast::error::RecvError;
    match changes.recv().await {
        Ok(batch) => Some(batch),
        Err(RecvError::Lagged(_)) => None,
        // The feed lives as long as the server, and the task as long as leadership.
        Err(RecvError::Closed) => std::future::pending().await,
    }
}

/// The batches that wait beside one just received, so that a burst is looked at once; none when some were missed.
pub(crate) fn more_batches(
    changes: &mut tokio::sync::broadcast::Receiver<std::sync::Arc<crate::feed::Batch>>,
    first: std::sync::Arc<crate::feed::Batch>,
) -> Option<Vec<std::sync::Arc<crate::feed::Batch>>> {
    use tokio::sync::broadcast::error::TryRecvError;
    let mut batches = vec![first];
    loop {
        match changes.try_recv() {
            Ok(batch) => batches.push(batch),
            Err(TryRecvError::Lagged(_)) => return None,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return Some(batches),
        }
    }
}
