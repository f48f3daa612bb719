//! Removal of what nobody needs: containers of this node that no start knows,
//! and images this driver brought that no task uses.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::OWN_LABEL_PREFIX;
use super::client::EngineError;
use super::container::Inner;
use crate::stats::unix_ns;

/// How often at most and at least to look.
const SHORTEST_TICK: Duration = Duration::from_millis(200);
const LONGEST_TICK: Duration = Duration::from_secs(60);
/// Names of images kept over a restart.
const MAX_IMAGES: usize = 100_000;

fn images_file(inner: &Inner) -> PathBuf {
    inner.options.state_dir.join("images.json")
}

/// Images brought by an earlier agent.
pub(crate) fn saved_images(state_dir: &Path) -> Vec<String> {
    let text = std::fs::read(state_dir.join("images.json")).unwrap_or_default();
    let mut images: Vec<String> = serde_json::from_slice(&text).unwrap_or_default();
    images.truncate(MAX_IMAGES);
    images
}

/// Keeps the list of images for a later agent.
pub(crate) fn save_images(inner: &Inner) {
    let text = serde_json::to_vec(&inner.images.all_brought()).unwrap_or_default();
    let (file, new) = (images_file(inner), images_file(inner).with_extension("new"));
    if let Err(e) = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file)) {
        tracing::warn!(error = %e, "cannot note which images are to be removed later");
    }
}

/// Looks from time to time, as long as the driver lives.
pub(crate) async fn run(inner: std::sync::Weak<Inner>) {
    let mut next_reap = None;
    loop {
        let tick = {
            let Some(inner) = inner.upgrade() else { return };
            if inner.options.gc_image {
                remove_images(&inner).await;
            }
            let period = inner.options.dangling.period;
            let now = tokio::time::Instant::now();
            let due = *next_reap.get_or_insert(now + period);
            if inner.options.dangling.enabled && now >= due {
                next_reap = Some(now + period);
                reap(&inner).await;
            }
            period.min(inner.options.gc_image_delay).clamp(SHORTEST_TICK, LONGEST_TICK)
        };
        tokio::time::sleep(tick).await;
    }
}

async fn remove_images(inner: &Arc<Inner>) {
    let idle = inner.images.take_idle(inner.options.gc_image_delay);
    if idle.is_empty() {
        return;
    }
    for image in idle {
        match inner.engine.delete(&format!("/images/{image}")).await {
            Ok(_) => tracing::debug!(image, "removed an image nobody uses"),
            Err(e) if e.not_found() => {}
            // Somebody else uses it or gave it a name.
            Err(e) if e.conflict() => tracing::debug!(image, error = %e, "an image stays"),
            Err(e) => {
                tracing::warn!(image, error = %e, "cannot remove an image; trying again later");
                inner.images.brought(&image);
            }
        }
    }
    save_images(inner);
}

/// Removes this node's containers that no start knows and that are old enough.
pub(crate) async fn reap(inner: &Arc<Inner>) {
    let options = &inner.options;
    // An agent that has just begun may not have taken up all its tasks.
    if inner.age() < options.dangling.creation_grace {
        return;
    }
    let containers = match inner.own_containers(&[]).await {
        Ok(containers) => containers,
        Err(e) => {
            tracing::warn!(error = %e, "cannot list containers to remove those nobody knows");
            return;
        }
    };
    let known: BTreeSet<String> = inner.known_starts();
    let grace = options.dangling.creation_grace.as_secs();
    for container in containers {
        let start = container.pointer(&format!("/Labels/{OWN_LABEL_PREFIX}start")).and_then(Value::as_str);
        let (Some(start), Some(id)) = (start, container.get("Id").and_then(Value::as_str)) else { continue };
        let created = container.get("Created").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let old = (unix_ns() / 1_000_000_000).saturating_sub(created) >= grace;
        let running = container.get("State").and_then(Value::as_str) == Some("running");
        if known.contains(start) || !old || (!running && !options.gc_container) {
            continue;
        }
        if options.dangling.dry_run {
            tracing::info!(container = id, start, "would remove a container that no start knows");
            continue;
        }
        match inner.remove(id).await {
            Ok(()) | Err(EngineError::Refused { status: 404, .. }) => {
                tracing::info!(container = id, start, "removed a container that no start knows");
                inner.forget_files(start);
            }
            Err(e) => tracing::warn!(container = id, error = %e, "cannot remove a container that no start knows"),
        }
    }
}
