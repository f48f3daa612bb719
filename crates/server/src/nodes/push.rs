//! What a node should run, as the difference to what it was last sent.

use herdsman_model::{AllocId, Allocation, Name, NodeId};
use herdsman_proto::{ServerFrame, ServerMessage, Work};
use herdsman_state::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of allocations and jobs after which a frame takes no more.
const FRAME_BYTES: usize = 4 * 1024 * 1024;

/// What a node was sent in this session, or said it has.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// The last server-side change of each allocation that the node knows.
    allocs: BTreeMap<AllocId, u64>,
    jobs: BTreeSet<(Name, Name, u64, u64)>,
    complete: bool,
    /// The change of the servers that the node is up to.
    up_to: u64,
}

impl Sent {
    /// What the node said it has when it opened the session.
    pub fn new(known: impl Iterator<Item = (AllocId, u64)>) -> Sent {
        Sent { allocs: known.collect(), ..Sent::default() }
    }

    /// The frames that bring the node up to this snapshot; none when nothing changed for it.
    pub fn difference(&mut self, snapshot: &Snapshot, node: NodeId) -> Vec<ServerFrame> {
        let mut frames = Vec::new();
        // Most changes are what the node said itself.
        let newest = snapshot.work_index(&node);
        if self.complete && newest == self.up_to {
            return frames;
        }
        self.up_to = newest;
        let mut work = Work { index: snapshot.index(), ..Work::default() };
        let mut bytes = 0;
        for alloc in snapshot.allocs_by_node(&node) {
            let known = self.allocs.get(&alloc.id).copied();
            // What is over is not started by a node that has forgotten it.
            if known == Some(alloc.alloc_modify_index) || (known.is_none() && alloc.client_terminal()) {
                continue;
            }
            if bytes >= FRAME_BYTES {
                let full = Work { index: work.index, ..Work::default() };
                frames.push(frame(std::mem::replace(&mut work, full)));
                bytes = 0;
            }
            bytes += self.add(snapshot, alloc, &mut work);
        }
        let gone: Vec<AllocId> = self
            .allocs
            .keys()
            .filter(|id| snapshot.alloc(id).is_none_or(|alloc| alloc.node_id != node))
            .copied()
            .collect();
        for id in gone {
            self.allocs.remove(&id);
            work.removed.push(id.0.to_vec());
        }
        work.complete = !self.complete;
        self.complete = true;
        if work.complete || !work.allocs_json.is_empty() || !work.removed.is_empty() {
            frames.push(frame(work));
        }
        frames
    }

    /// Adds an allocation, and its job when the node has not been sent it. Gives the bytes added.
    fn add(&mut self, snapshot: &Snapshot, alloc: &Allocation, work: &mut Work) -> usize {
        let mut bytes = 0;
        let version = (alloc.namespace.clone(), alloc.job_id.clone(), alloc.job_create_index, alloc.job_version);
        if !self.jobs.contains(&version)
            && let Some(job) = snapshot.alloc_job(alloc)
            && let Ok(json) = serde_json::to_vec(&**job)
        {
            bytes += json.len();
            work.jobs_json.push(json);
            self.jobs.insert(version);
        }
        // The node knows its own states better, and why it was chosen is nothing to it.
        let bare = Allocation { task_states: BTreeMap::new(), metrics: None, ..alloc.clone() };
        if let Ok(json) = serde_json::to_vec(&bare) {
            bytes += json.len();
            work.allocs_json.push(json);
            self.allocs.insert(alloc.id, alloc.alloc_modify_index);
        }
        bytes
    }
}

fn frame(work: Work) -> ServerFrame {
    ServerFrame { message: Some(ServerMessage::Work(work)) }
}
