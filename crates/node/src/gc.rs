//! Removing terminal allocations from the node: when there are too many, when the disk is full, or on request.
//!
//! Only an allocation whose every task is dead and whose states the servers have is removed; a poststop task that runs
//! keeps its allocation.

use crate::alloc::{AllocHandle, Msg};
use crate::config::GcConfig;
use crate::fingerprint;
use crate::node::Shared;
use crate::serve::Refusal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

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
    let config = shared.config.gc.clone();
    let interval = Duration::from_nanos(u64::try_from(config.interval).unwrap_or(60_000_000_000).max(1_000_000));
    let mut stop = shared.stopping.subscribe();
    let mut told = false;
    loop {
        let count = shared.count();
        if let Some(reason) = pressure(&config, &shared, count) {
            let candidates = eligible(&shared);
            let candidates_left = candidates.len();
            // One more than needed is never taken: the rest is looked at again after these.
            let batch: Vec<_> = candidates.into_iter().take(config.parallel_destroys.max(1)).collect();
            if !batch.is_empty() {
                tracing::info!(%reason, count = batch.len(), "collecting terminal allocations");
                let mut collected = 0;
                for handle in batch {
                    match collect(&handle).await {
                        Ok(()) => collected += 1,
                        Err(refusal) => tracing::debug!(alloc = %handle.info.id, %refusal, "not collected"),
                    }
                }
                told = false;
                if collected > 0 {
                    continue;
                }
            }
            if candidates_left == 0 && !told {
                tracing::warn!(%reason, "garbage collection skipped because no terminal allocations");
                told = true;
            }
        }
        tokio::select! {
            () = shared.world.clock.sleep(interval) => told = false,
            () = shared.gc_wanted() => {}
            () = shared.updates.next_ack(), if told => {}
            () = crate::node::stopped(&mut stop) => return,
        }
    }
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
