//! Evaluations.

use super::Applied;
use crate::codec::Reply;
use crate::command::UpsertEvals;
use crate::link::eval_key;
use crate::rows::JobKey;
use crate::txn::Txn;
use herdsman_model::{Allocation, EvalId, EvalStatus, Evaluation};

pub(crate) fn upsert(txn: &mut Txn<'_>, command: UpsertEvals) -> Applied {
    let mut reply = Reply::default();
    for eval in command.evals {
        reply.eval_ids.push(eval.id);
        write(txn, eval);
    }
    for (id, transition) in command.transitions {
        if let Some(alloc) = txn.s.allocs.get(&id) {
            let mut alloc = Allocation::clone(alloc);
            super::allocs::merge_transition(&mut alloc.desired_transition, &transition);
            alloc.alloc_modify_index = txn.index;
            txn.put_alloc(alloc);
        }
    }
    reply.eval_id = reply.eval_ids.first().copied();
    Ok(reply)
}

/// Writes an evaluation with what follows: queued counts, and the blocked evaluations it makes superfluous.
pub(crate) fn write(txn: &mut Txn<'_>, eval: Evaluation) {
    if let Some(stored) = txn.s.evals.get(&eval.id)
        && stored.status.is_terminal()
        && !eval.status.is_terminal()
    {
        // What is over does not come back to life because a slow worker still writes about it.
        return;
    }
    let key = eval_key(&eval);
    if !eval.queued_allocations.is_empty()
        && let Some(summary) = txn.summary(&key)
    {
        for (name, queued) in &eval.queued_allocations {
            if let Some(group) = summary.groups.get_mut(name) {
                group.queued = *queued;
            }
        }
    }
    let (id, status, unplaced) = (eval.id, eval.status, !eval.failed_groups.is_empty());
    if status == EvalStatus::Blocked {
        cancel_blocked(txn, &key, id, &format!("existing blocked evaluation exists for job \"{}\"", key.id));
    }
    txn.put_eval(eval);
    if status == EvalStatus::Complete && !unplaced {
        cancel_blocked(txn, &key, id, &format!("evaluation \"{id}\" successful"));
    }
}

/// Cancels the blocked evaluations of a job, except one.
pub(crate) fn cancel_blocked(txn: &mut Txn<'_>, key: &JobKey, except: EvalId, why: &str) {
    let blocked: Vec<EvalId> = match txn.s.blocked_by_job.get(key) {
        Some(ids) => ids.iter().copied().filter(|id| *id != except).collect(),
        None => return,
    };
    for id in blocked {
        cancel(txn, id, why);
    }
}

/// Cancels an evaluation that is not over.
pub(crate) fn cancel(txn: &mut Txn<'_>, id: EvalId, why: &str) {
    let Some(eval) = txn.s.evals.get(&id) else { return };
    if eval.status.is_terminal() {
        return;
    }
    let mut eval = Evaluation::clone(eval);
    eval.status = EvalStatus::Canceled;
    eval.status_description = why.to_owned();
    txn.put_eval(eval);
}
