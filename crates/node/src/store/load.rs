//! Reading the whole store at start. A record that cannot be read costs only its allocation.

use super::{ALLOCS, FORMAT, HANDLES, JOBS, LIVES, META, Stored, TASKS};
use crate::alloc::StoredLife;
use herdsman_lifecycle::TaskRecord;
use herdsman_model::{AllocId, Allocation, Job, Name};
use prost::Message;
use redb::{ReadTransaction, ReadableTable};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that was stored.
#[derive(Debug, Default)]
pub struct Loaded {
    pub jobs: BTreeMap<String, Arc<Job>>,
    pub allocs: BTreeMap<AllocId, LoadedAlloc>,
    pub meta: BTreeMap<String, Vec<u8>>,
}

/// What was stored of one allocation.
#[derive(Debug, Default)]
pub struct LoadedAlloc {
    pub alloc: Allocation,
    pub life: Option<StoredLife>,
    pub tasks: BTreeMap<Name, TaskRecord>,
    pub handles: BTreeMap<Name, Vec<u8>>,
    /// What of it could not be read.
    pub damage: Option<String>,
}

fn envelope(bytes: &[u8]) -> Result<Stored, String> {
    let stored = Stored::decode(bytes).map_err(|error| error.to_string())?;
    match stored.format {
        1..=FORMAT => Ok(stored),
        other => Err(format!("record format {other} is not known to this version, which knows up to {FORMAT}")),
    }
}

fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(&envelope(bytes)?.json).map_err(|error| error.to_string())
}

pub(super) fn load(txn: &ReadTransaction) -> Result<Loaded, redb::Error> {
    let mut loaded = Loaded::default();
    for entry in txn.open_table(META)?.iter()? {
        let (key, value) = entry?;
        match envelope(value.value()) {
            Ok(stored) => drop(loaded.meta.insert(key.value().to_string(), stored.json)),
            Err(error) => tracing::warn!(key = key.value(), %error, "skipping a damaged record"),
        }
    }
    for entry in txn.open_table(JOBS)?.iter()? {
        let (key, value) = entry?;
        match json::<Job>(value.value()) {
            Ok(job) => drop(loaded.jobs.insert(key.value().to_string(), Arc::new(job))),
            Err(error) => tracing::warn!(job = key.value(), %error, "skipping a damaged job"),
        }
    }
    for entry in txn.open_table(ALLOCS)?.iter()? {
        let (key, value) = entry?;
        match (alloc_id(key.value()), json::<Allocation>(value.value())) {
            (Some((id, _)), Ok(alloc)) => {
                drop(loaded.allocs.insert(id, LoadedAlloc { alloc, ..LoadedAlloc::default() }));
            }
            (id, error) => {
                let error = error.err().unwrap_or_else(|| "the key is no id".into());
                tracing::warn!(alloc = ?id.map(|i| i.0), %error, "dropping a damaged allocation; the servers send it again");
            }
        }
    }
    load_parts(txn, &mut loaded)?;
    Ok(loaded)
}

fn load_parts(txn: &ReadTransaction, loaded: &mut Loaded) -> Result<(), redb::Error> {
    for entry in txn.open_table(LIVES)?.iter()? {
        let (key, value) = entry?;
        let Some((id, _)) = alloc_id(key.value()) else { continue };
        let Some(alloc) = loaded.allocs.get_mut(&id) else { continue };
        match json::<StoredLife>(value.value()) {
            Ok(life) => alloc.life = Some(life),
            Err(error) => alloc.damage = Some(format!("lifecycle record: {error}")),
        }
    }
    for entry in txn.open_table(TASKS)?.iter()? {
        let (key, value) = entry?;
        let Some((id, task)) = alloc_id(key.value()) else { continue };
        let Some(alloc) = loaded.allocs.get_mut(&id) else { continue };
        match json::<TaskRecord>(value.value()) {
            Ok(record) => drop(alloc.tasks.insert(task, record)),
            Err(error) => alloc.damage = Some(format!("record of task {task}: {error}")),
        }
    }
    for entry in txn.open_table(HANDLES)?.iter()? {
        let (key, value) = entry?;
        let Some((id, task)) = alloc_id(key.value()) else { continue };
        let Some(alloc) = loaded.allocs.get_mut(&id) else { continue };
        match envelope(value.value()) {
            Ok(stored) => drop(alloc.handles.insert(task, stored.opaque)),
            Err(error) => alloc.damage = Some(format!("handle of task {task}: {error}")),
        }
    }
    Ok(())
}

/// The id at the start of a key, and the text after it.
fn alloc_id(key: &[u8]) -> Option<(AllocId, Name)> {
    let (id, rest) = key.split_first_chunk::<16>()?;
    Some((AllocId(*id), Name::from(std::str::from_utf8(rest).ok()?)))
}
