//! What operators configure, and services of the native provider.

use super::{Applied, multi_error};
use crate::codec::{Refusal, Reply};
use crate::command::{DeleteNamed, ServiceUpdates, SetSchedulerConfig, UpsertNamespaces, UpsertNodePools};
use crate::rows::{ALL_POOL, DEFAULT_NAMESPACE, DEFAULT_POOL};
use crate::txn::Txn;
use herdsman_model::JobStatus;

pub(crate) fn services(txn: &mut Txn<'_>, command: ServiceUpdates) -> Applied {
    for service in command.register {
        // A registration that arrives after its allocation's end would never go again.
        let live = txn.s.allocs.get(&service.alloc_id).is_some_and(|alloc| !alloc.client_terminal());
        if live {
            txn.put_service(service);
        }
    }
    for id in command.deregister {
        let allowed = match (&command.within, txn.s.services.get(&id)) {
            (Some(namespace), Some(service)) => *service.namespace == **namespace,
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !allowed {
            return Err(Refusal::new(500, "service registration not found"));
        }
        txn.delete_service(&id);
    }
    Ok(Reply::default())
}

pub(crate) fn scheduler_config(txn: &mut Txn<'_>, command: SetSchedulerConfig) -> Applied {
    if command.cas.is_some_and(|index| index != txn.s.scheduler_config.modify_index) {
        return Ok(Reply::default());
    }
    txn.put_scheduler_config(command.config);
    Ok(Reply { updated: true, ..Reply::default() })
}

pub(crate) fn upsert_namespaces(txn: &mut Txn<'_>, command: UpsertNamespaces) -> Applied {
    for namespace in command.namespaces {
        if !namespace.quota.is_empty() {
            let (name, quota) = (&namespace.name, &namespace.quota);
            return Err(Refusal::new(500, format!("namespace \"{name}\" using non-existent quota \"{quota}\"")));
        }
        txn.put_namespace(namespace);
    }
    Ok(Reply::default())
}

pub(crate) fn delete_namespaces(txn: &mut Txn<'_>, command: &DeleteNamed) -> Applied {
    let mut problems = Vec::new();
    for name in &command.names {
        if name == DEFAULT_NAMESPACE {
            return Err(Refusal::new(500, "can not delete default namespace"));
        }
        if txn.s.namespace(name).is_none() {
            return Err(Refusal::new(500, "namespace not found"));
        }
        let busy = txn.s.jobs_by_prefix(name, "").any(|job| job.status != JobStatus::Dead);
        if busy {
            problems.push(format!("namespace \"{name}\" has non-terminal jobs in regions: [{}]", command.region));
        }
    }
    if !problems.is_empty() {
        return Err(Refusal::new(500, multi_error(&problems)));
    }
    for name in &command.names {
        txn.delete_namespace(name);
    }
    Ok(Reply::default())
}

fn is_built_in(pool: &str) -> bool {
    pool == DEFAULT_POOL || pool == ALL_POOL
}

pub(crate) fn upsert_pools(txn: &mut Txn<'_>, command: UpsertNodePools) -> Applied {
    for pool in command.pools {
        if is_built_in(&pool.name) {
            return Err(Refusal::new(400, format!("modifying node pool \"{}\" is not allowed", pool.name)));
        }
        txn.put_pool(pool);
    }
    Ok(Reply::default())
}

pub(crate) fn delete_pools(txn: &mut Txn<'_>, command: &DeleteNamed) -> Applied {
    let mut problems = Vec::new();
    for name in &command.names {
        if txn.s.node_pool(name).is_none() {
            return Err(Refusal::new(500, "node pool not found"));
        }
        let jobs = txn.s.jobs().any(|job| job.node_pool == *name && job.status != JobStatus::Dead);
        if jobs {
            problems.push(format!("node pool \"{name}\" has non-terminal jobs in regions: [{}]", command.region));
        }
        let nodes = *name == ALL_POOL || txn.s.nodes().any(|node| node.node_pool == *name);
        if nodes {
            problems.push(format!("node pool \"{name}\" has nodes in regions: [{}]", command.region));
        }
        if is_built_in(name) && !jobs && !nodes {
            problems.push(format!("deleting node pool \"{name}\" is not allowed"));
        }
    }
    if !problems.is_empty() {
        return Err(Refusal::new(500, multi_error(&problems)));
    }
    for name in &command.names {
        txn.delete_pool(name);
    }
    Ok(Reply::default())
}
