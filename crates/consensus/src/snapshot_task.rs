//! Takes snapshots when enough has been applied, or when asked.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::config::SnapshotError;
use crate::convert::Raft;
use crate::machine::MachineStore;

/// After a snapshot that failed the next is tried no sooner than this.
const RETRY_AFTER: Duration = Duration::from_secs(30);

pub(crate) type Order = oneshot::Sender<Result<Option<u64>, SnapshotError>>;

/// Runs until `stop` or until nobody can ask any more.
pub(crate) async fn run(
    machine: MachineStore,
    raft: Raft,
    mut orders: mpsc::Receiver<Order>,
    mut stop: watch::Receiver<bool>,
    last_error: watch::Sender<Option<String>>,
) {
    let mut pause = false;
    loop {
        let order = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            order = orders.recv() => match order {
                Some(order) => Some(order),
                None => return,
            },
            () = machine.pressure.due.notified(), if !pause => None,
            () = tokio::time::sleep(RETRY_AFTER), if pause => {
                pause = false;
                continue;
            }
        };
        let result = take(&machine, &raft).await;
        pause = result.is_err();
        if let Err(error) = &result {
            tracing::error!(%error, "no snapshot was taken; the log grows until one is");
        }
        last_error.send_replace(result.as_ref().err().map(ToString::to_string));
        if let Some(order) = order
            && order.send(result).is_err()
        {
            tracing::debug!("nobody waits for the snapshot any more");
        }
    }
}

/// Gives the index the current snapshot covers, none when nothing has been applied.
async fn take(machine: &MachineStore, raft: &Raft) -> Result<Option<u64>, SnapshotError> {
    if let Some((applied, write)) = machine.capture() {
        let written = herdsman_world::disk::run(&*machine.snapshots.disk, write).await;
        written.map_err(|error| SnapshotError::Write(error.to_string()))?;
        tracing::info!(index = applied.index, "snapshot taken");
        raft.trigger().snapshot().await.map_err(|_| SnapshotError::Shutdown)?;
    }
    Ok(machine.snapshots.current().and_then(|current| current.meta.last_log_id).map(|last| last.index))
}
