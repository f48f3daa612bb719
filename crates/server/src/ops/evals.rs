//! Evaluations and collection.

use crate::error::ServerError;
use crate::server::Server;
use herdsman_model::EvalId;
use herdsman_state::{Body, Gc};

/// Evaluations that one call may delete.
const MAX_DELETED: usize = 7281;

/// What deleting evaluations led to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvalsDeleted {
    pub count: u64,
    pub index: u64,
}

impl Server {
    /// Deletes evaluations, while the broker is paused.
    ///
    /// # Errors
    /// 400 when none or too many are named; 500 while the broker works.
    pub async fn delete_evals(&self, evals: Vec<EvalId>) -> Result<EvalsDeleted, ServerError> {
        if evals.is_empty() {
            return Err(ServerError::new(400, "evals must be deleted by either ID or filter"));
        }
        if !self.snapshot().scheduler_config().pause_eval_broker {
            let text = "eval broker is enabled; eval broker must be paused to delete evals";
            return Err(ServerError::refused(text));
        }
        if evals.len() > MAX_DELETED {
            let text = format!("request includes {} evaluation IDs, must be {MAX_DELETED} or fewer", evals.len());
            return Err(ServerError::new(400, text));
        }
        let applied = self.propose(Body::Gc(Gc { evals, force_evals: true, ..Gc::default() })).await?;
        Ok(EvalsDeleted { count: applied.reply.collected, index: applied.index })
    }

    /// Collects everything that is over, whatever its age. Gives how many rows went.
    ///
    /// # Errors
    /// The log takes nothing.
    pub async fn collect_garbage(&self) -> Result<u64, ServerError> {
        let mut collected = 0;
        // What is collected may make more collectable: a job once its evaluations are gone.
        for _ in 0..3 {
            let round = crate::leader::collect_all(self).await?;
            collected += round;
            if round == 0 {
                break;
            }
        }
        Ok(collected)
    }

    /// Brings the counts of jobs in line with their rows. They are derived while applying and never drift; kept for
    /// clients that ask.
    ///
    /// # Errors
    /// What is derived does not agree with the rows: a fault of this program.
    pub fn reconcile_summaries(&self) -> Result<(), ServerError> {
        let checked = self.snapshot().check();
        checked.map_err(|what| ServerError::refused(format!("{what} do not agree with the rows they come from")))
    }
}
