//! Collecting what is over. The proposer chose from an older snapshot, so each row is looked at once more.

use super::Applied;
use crate::codec::Reply;
use crate::command::Gc;
use crate::rows::JobKey;
use crate::txn::Txn;
use herdsman_model::{JobStatus, NodeStatus};

pub(crate) fn collect(txn: &mut Txn<'_>, command: Gc) -> Applied {
    let mut collected = 0u64;
    for id in command.allocs {
        let over = txn.s.allocs.get(&id).is_some_and(|alloc| alloc.client_terminal());
        if over && txn.delete_alloc(&id) {
            collected += 1;
        }
    }
    for id in command.evals {
        let over = txn.s.evals.get(&id).is_some_and(|eval| eval.status.is_terminal() || command.force_evals);
        if over && txn.delete_eval(&id) {
            collected += 1;
        }
    }
    for id in command.deployments {
        let over = txn.s.deployments.get(&id).is_some_and(|deployment| !deployment.is_active());
        if over && txn.delete_deployment(&id) {
            collected += 1;
        }
    }
    for job in command.jobs {
        let key = JobKey::new(&job.namespace, &job.job_id);
        let over = txn.s.jobs.get(&key).is_some_and(|stored| {
            stored.status == JobStatus::Dead && stored.job_modify_index == job.modify_index && !txn.s.job_is_live(&key)
        });
        if over {
            txn.delete_job(&key);
            collected += 1;
        }
    }
    for id in command.nodes {
        let over = txn.s.nodes.get(&id).is_some_and(|node| node.status == NodeStatus::Down)
            && !txn.s.allocs_by_node(&id).any(|alloc| !alloc.terminal());
        if over && txn.delete_node(&id).is_some() {
            collected += 1;
        }
    }
    Ok(Reply { collected, ..Reply::default() })
}
