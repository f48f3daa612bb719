//! Runs schedulers: takes an evaluation, plans on a snapshot, commits the plan, and again when part of it was refused.

use super::broker::Delivery;
use crate::error::ServerError;
use crate::feed::Published;
use crate::server::Server;
use crate::view::StateView;
use herdsman_model::{Decision, EvalStatus, Evaluation};
use herdsman_scheduler::{give_up, made_progress, max_attempts, process};
use herdsman_state::{Body, Table, UpsertEvals, WatchKey};
use herdsman_world::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The description of evaluations that a newer one of their job made superfluous.
const SUPERFLUOUS: &str = "canceled after more recent eval was processed";

/// Keeps as many workers at work as the configuration says now. Ends only when one of them failed.
pub(crate) async fn crew(server: Server) {
    let mut config = server.config_changes();
    let mut workers = JoinSet::new();
    let mut numbers = BTreeSet::new();
    loop {
        let wanted = config.borrow_and_update().schedulers.max(1);
        for number in (0..wanted).filter(|number| numbers.insert(*number)) {
            workers.spawn(run(server.clone(), number));
        }
        tokio::select! {
            biased;
            ended = workers.join_next() => match ended {
                Some(Ok(number)) => drop(numbers.remove(&number)),
                Some(Err(error)) => {
                    tracing::error!(%error, "a scheduler ended");
                    return;
                }
                None => {}
            },
            // The sender lives as long as the server.
            _ = config.changed() => {}
        }
    }
}

/// Works until fewer workers than its number are wanted; gives the number.
async fn run(server: Server, number: usize) -> usize {
    while let Some(delivery) = next(&server, number).await {
        let id = delivery.eval.id;
        // The next deadline may now be the end of this delivery.
        server.inner.leader.deadline.notify_one();
        let done = bring_to_end(&server, &delivery).await;
        let now = server.now();
        match done {
            Ok(()) => {
                let superfluous = server.inner.leader.broker().ack(id, delivery.token, now);
                cancel(&server, superfluous);
            }
            Err(error) => {
                tracing::warn!(eval = %id, job = %delivery.eval.job_id, %error, "an evaluation was not brought to its end");
                // The last failed delivery is taken up again by the feeder, which marks it.
                let given_up = server.inner.leader.broker().nack(id, delivery.token, now);
                if let Some(eval) = given_up {
                    mark_failed(&server, &eval, &error);
                }
            }
        }
        // Whatever waited behind this job may be ready now.
        if server.inner.leader.broker().ready_count() > 0 {
            server.inner.leader.work.notify_waiters();
        }
        server.inner.leader.deadline.notify_one();
    }
    number
}

/// Waits for an evaluation to work on; none when this worker is one too many.
async fn next(server: &Server, number: usize) -> Option<Delivery> {
    let nack = i64::try_from(server.config().nack_timeout.as_nanos()).unwrap_or(i64::MAX);
    let mut config = server.config_changes();
    loop {
        if number >= config.borrow_and_update().schedulers.max(1) {
            return None;
        }
        let work = server.inner.leader.work.notified();
        let mut work = std::pin::pin!(work);
        work.as_mut().enable();
        if let Some(delivery) = server.inner.leader.broker().dequeue(server.now(), nack) {
            return Some(delivery);
        }
        tokio::select! {
            biased;
            () = work => {}
            _ = config.changed() => {}
        }
    }
}

/// Marks superfluous evaluations, beside the worker's own work.
fn cancel(server: &Server, ids: Vec<herdsman_model::EvalId>) {
    if ids.is_empty() {
        return;
    }
    let snapshot = server.snapshot();
    let evals: Vec<Evaluation> = ids
        .iter()
        .filter_map(|id| snapshot.eval(id))
        .filter(|eval| !eval.status.is_terminal())
        .map(|eval| Evaluation {
            status: EvalStatus::Canceled,
            status_description: SUPERFLUOUS.to_owned(),
            ..Evaluation::clone(eval)
        })
        .collect();
    write_beside(server, evals);
}

fn mark_failed(server: &Server, eval: &Evaluation, error: &ServerError) {
    let mut failed = eval.clone();
    failed.status = EvalStatus::Failed;
    failed.status_description = format!("evaluation reached delivery limit: {error}");
    write_beside(server, vec![failed]);
}

fn write_beside(server: &Server, evals: Vec<Evaluation>) {
    let writer = server.clone();
    server.spawn(async move {
        let body = Body::UpsertEvals(UpsertEvals { evals, ..UpsertEvals::default() });
        if let Err(error) = writer.propose(body).await {
            tracing::warn!(%error, "evaluations that are over could not be marked as such");
        }
    });
}

/// The snapshot once it shows at least this index.
async fn snapshot_at(server: &Server, index: u64) -> Arc<Published> {
    loop {
        let mut watching = server.watch(&[WatchKey::Table(Table::Allocs), WatchKey::Table(Table::Evals)]);
        let changed = watching.prepare();
        let published = server.inner.feed.published();
        if published.snapshot.index() >= index {
            return published;
        }
        changed.await;
    }
}

/// Plans and commits until the evaluation is over.
async fn bring_to_end(server: &Server, delivery: &Delivery) -> Result<(), ServerError> {
    let mut least = delivery.eval.modify_index;
    let mut attempts = 0;
    loop {
        let published = snapshot_at(server, least).await;
        let eval = match published.snapshot.eval(&delivery.eval.id) {
            Some(eval) if !eval.status.is_terminal() => eval.clone(),
            // Canceled or collected in the meantime.
            _ => return Ok(()),
        };
        let decision = plan(server, &published, &eval).await?;
        let committed = server.inner.leader.plans.commit(server, &decision, delivery.token).await?;
        if committed.rejected.is_empty() {
            return Ok(());
        }
        attempts = if made_progress(&decision, &committed) { 0 } else { attempts + 1 };
        least = committed.refresh_index;
        if attempts >= max_attempts(eval.kind) {
            let view = StateView::published(&server.inner.feed.published());
            let rng = Arc::clone(&server.world().rng);
            let last = give_up(&view, &eval, &decision, server.now(), &mut || rng.bytes16());
            let mut evals = last.new_evals;
            evals.push(last.evaluation);
            server.propose(Body::UpsertEvals(UpsertEvals { evals, ..UpsertEvals::default() })).await?;
            return Ok(());
        }
        let nack = i64::try_from(server.config().nack_timeout.as_nanos()).unwrap_or(i64::MAX);
        server.inner.leader.broker().touch(eval.id, delivery.token, server.now(), nack);
    }
}

/// The seed of an evaluation's choices: the same for the same evaluation and state.
pub(crate) fn seed_of(eval: &Evaluation, index: u64) -> u64 {
    let mut low = [0u8; 8];
    for (to, from) in low.iter_mut().zip(eval.id.0.iter().skip(8)) {
        *to = *from;
    }
    (u64::from_be_bytes(low) ^ index) >> 2
}

/// Runs the scheduler, off the tasks that wait for others where the world is the real one.
async fn plan(server: &Server, published: &Arc<Published>, eval: &Arc<Evaluation>) -> Result<Decision, ServerError> {
    let view = StateView::published(published);
    let seed = seed_of(eval, published.snapshot.index());
    let now = server.now();
    let rng: Arc<dyn Rng> = Arc::clone(&server.world().rng);
    let eval = Arc::clone(eval);
    let work = move || process(&view, &eval, seed, now, &mut || rng.bytes16());
    if server.world().disk.is_instant() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|error| ServerError::refused(format!("scheduler: {error}")))
}
