//! What the allocations of each node use, kept beside the tables by adding and removing, so that neither planning nor
//! checking a plan costs more as a cluster fills up.

use herdsman_model::NodeId;
use herdsman_scheduler::Load;
use herdsman_state::{Change, Snapshot};
use imbl::OrdMap;
use std::sync::Arc;

/// The load of each node that has any. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loads {
    by_node: OrdMap<NodeId, Arc<Load>>,
}

impl Loads {
    /// The loads of a snapshot, added up anew.
    pub fn of(snapshot: &Snapshot) -> Loads {
        let mut loads = Loads::default();
        for alloc in snapshot.allocs().filter(|alloc| !alloc.client_terminal()) {
            loads.change(alloc.node_id, |load| load.add(&alloc.resources));
        }
        loads
    }

    /// The load of a node; none when nothing runs there.
    pub fn get(&self, node: &NodeId) -> Option<&Arc<Load>> {
        self.by_node.get(node)
    }

    fn change(&mut self, node: NodeId, change: impl FnOnce(&mut Load)) {
        let load = Arc::make_mut(self.by_node.entry(node).or_default());
        change(load);
        if load.allocs == 0 {
            self.by_node.remove(&node);
        }
    }

    /// Takes over what commands changed.
    pub fn take_in(&mut self, changes: &[Change]) {
        for change in changes {
            let (before, after) = change.alloc();
            let before = before.filter(|alloc| !alloc.client_terminal());
            let after = after.filter(|alloc| !alloc.client_terminal());
            if let (Some(before), Some(after)) = (before, after)
                && before.node_id == after.node_id
                && Arc::ptr_eq(&before.resources, &after.resources)
            {
                continue;
            }
            if let Some(before) = before {
                self.change(before.node_id, |load| load.remove(&before.resources));
            }
            if let Some(after) = after {
                self.change(after.node_id, |load| load.add(&after.resources));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use herdsman_model::{
        AllocId, AllocatedResources, AllocatedTaskResources, Allocation, ClientStatus, Job, Name, Node,
    };
    use herdsman_proto::AllocUpdate;
    use herdsman_state::{ApplyPlan, Body, Command, Gc, RegisterJob, Store, UpdateAllocs, UpsertNode};

    fn alloc(n: u8, job: &Job, mhz: i64) -> Arc<Allocation> {
        let mut task = AllocatedTaskResources::default();
        task.cpu.cpu_shares = mhz;
        let resources = AllocatedResources { tasks: [("t".to_owned(), task)].into(), ..Default::default() };
        Arc::new(Allocation {
            id: AllocId([n; 16]),
            namespace: Name::from("default"),
            job_id: Name::from("a"),
            job_create_index: job.create_index,
            node_id: NodeId([n % 3; 16]),
            resources: Arc::new(resources),
            ..Allocation::default()
        })
    }

    #[test]
    fn loads_kept_by_changes_are_those_added_up_anew() {
        let mut store = Store::new();
        let mut loads = Loads::default();
        let mut step = |store: &mut Store, body| {
            let outcome = store.apply(Command { now: 1, body });
            outcome.result.as_ref().unwrap();
            loads.take_in(&outcome.changes);
            let fresh = Loads::of(store.snapshot());
            let used = |loads: &Loads| {
                loads.by_node.iter().map(|(node, load)| (*node, load.usage, load.allocs)).collect::<Vec<_>>()
            };
            assert_eq!(used(&loads), used(&fresh));
            fresh.by_node.len()
        };
        for n in 0..3 {
            let node = Node { id: NodeId([n; 16]), ..Node::default() };
            step(&mut store, Body::UpsertNode(Box::new(UpsertNode { node, ready: true, ..Default::default() })));
        }
        let job = Job { id: "a".into(), namespace: "default".into(), ..Job::default() };
        step(&mut store, Body::RegisterJob(Box::new(RegisterJob { job, ..Default::default() })));
        let job = store.snapshot().job("default", "a").unwrap().clone();
        let plan = |allocs: Vec<Arc<Allocation>>| {
            Body::ApplyPlan(Box::new(ApplyPlan { placements: allocs, ..Default::default() }))
        };
        assert_eq!(step(&mut store, plan((0..9).map(|n| alloc(n, &job, 100)).collect())), 3);
        // In place, with other resources.
        step(&mut store, plan(vec![alloc(4, &job, 700)]));
        let says = |n: u8, client_status| AllocUpdate { id: AllocId([n; 16]), client_status, ..AllocUpdate::default() };
        for status in [ClientStatus::Running, ClientStatus::Complete] {
            let updates = (0..9).filter(|n| n % 3 != 0).map(|n| says(n, status)).collect();
            step(&mut store, Body::UpdateAllocs(UpdateAllocs { updates, ..Default::default() }));
        }
        let gc = Gc { allocs: vec![AllocId([1; 16])], ..Gc::default() };
        assert_eq!(step(&mut store, Body::Gc(gc)), 1);
    }
}
