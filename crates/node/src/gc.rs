//! Removing terminal allocations from the node: when there are too many, when the disk is full, or on request.
//!
//! Only an allocation whose every task is dead and whose states the servers have is removed; a poststop task that runs
//! keeps its allocation.

use crate::alloc::{AllocHandle, Msg};
use crate::config::GcConfig;
use crate::fingerprint;
use crate::node::{Shared, stopped};
use crate::serve::Refusal;
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// A collection begins when no allocation has begun for this long: new work goes first.
const LINGER: Duration = Duration::from_secs(1);
/// Work that keeps beginning puts a collection off by at most this many times that.
const LINGERS: usize = 10;

/// Why something has to go.
fn pressure(config: &GcConfig, shared: &Shared, allocs: usize) -> Option<String> {
    if allocs > config.max_allocs {
        return Some(format!("number of allocations ({allocs}) is over the limit ({})", config.max_allocs));
    }
    let space = fingerprint::space(&shared.config.alloc_dir)?;
    let (disk, inodes) = (space.used_percent(), space.inodes_used_percent());
    if disk > config.disk_usage_threshold {
        return Some(format!("disk usage of {disk:.0} is over gc threshold of {:.0}", config.disk_usage_threshold));
    }
    if inodes > config.inode_usage_threshold {
        return Some(format!("inode usage of {inodes:.0} is over gc threshold of {:.0}", config.inode_usage_threshold));
    }
    None
}

/// Terminal allocations whose states have arrived, the longest ended first.
fn eligible(shared: &Shared) -> Vec<AllocHandle> {
    let mut found: Vec<_> = shared
        .handles()
        .into_iter()
        .filter(|handle| handle.info.is_terminal() && !shared.updates.is_pending(handle.info.id))
        .collect();
    found.sort_by_key(|handle| handle.info.terminal_at.load(Ordering::Relaxed));
    found
}

/// Collects until the node is shut down.
pub async fn run(shared: Arc<Shared>) {
    let mut changes = shared.tuning_changes();
    let mut stop = shared.stopping.subscribe();
    let mut told = false;
    loop {
        let (collected, waiting) = round(&shared).await;
        match waiting {
            Some(reason) if collected == 0 && !told => {
                tracing::warn!(%reason, "garbage collection skipped because no terminal allocations");
                told = true;
            }
            _ => told &= waiting.is_some() && collected == 0,
        }
        let interval = changes.borrow_and_update().gc.interval;
        let interval = Duration::from_nanos(u64::try_from(interval).unwrap_or(0).max(1_000_000));
        let wait = if collected > 0 { LINGER } else { interval };
        tokio::select! {
            () = shared.world.clock.sleep(wait) => {}
            () = async {
                shared.gc_wanted().await;
                quiet(&shared).await;
            } => {}
            // The sender lives as long as the node; with other thresholds it is looked at once.
            _ = changes.changed() => {}
            () = stopped(&mut stop) => return,
        }
    }
}

/// Waits for a moment in which nothing begins. What ends together is collected together.
async fn quiet(shared: &Shared) {
    for _ in 0..LINGERS {
        let begun = shared.begun();
        shared.world.clock.sleep(LINGER).await;
        if shared.begun() == begun {
            return;
        }
    }
}

/// Removes what has to go now. Gives how many went, and why more should.
async fn round(shared: &Arc<Shared>) -> (usize, Option<String>) {
    let tuning = shared.tuning();
    let config = &tuning.gc;
    let count = shared.count();
    let Some(reason) = pressure(config, shared, count) else { return (0, None) };
    let wanted = count.saturating_sub(config.max_allocs).max(config.parallel_destroys).max(1);
    let batch: Vec<_> = eligible(shared).into_iter().take(wanted).collect();
    if batch.is_empty() {
        return (0, Some(reason));
    }
    tracing::info!(%reason, count = batch.len(), "collecting terminal allocations");
    let work = futures::stream::iter(batch).map(|handle| async move {
        let result = collect(&handle).await;
        if let Err(refusal) = &result {
            tracing::debug!(alloc = %handle.info.id, %refusal, "not collected");
        }
        usize::from(result.is_ok())
    });
    let collected = work.buffer_unordered(config.parallel_destroys.max(1)).collect::<Vec<_>>().await.into_iter().sum();
    (collected, Some(reason))
}

/// Removes one allocation.
pub async fn collect(handle: &AllocHandle) -> Result<(), Refusal> {
    let refused = || Refusal::failed(crate::alloc::NOT_ELIGIBLE);
    let (reply, answer) = oneshot::channel();
    handle.sender.send(Msg::Destroy { reply }).await.map_err(|_| refused())?;
    answer.await.map_err(|_| refused())?
}

/// Removes every terminal allocation.
pub async fn collect_all(shared: &Shared) {
    for handle in eligible(shared) {
        if let Err(refusal) = collect(&handle).await {
            tracing::debug!(alloc = %handle.info.id, %refusal, "not collected");
        }
    }
}
