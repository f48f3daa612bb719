//! Stored snapshots: a header, one tagged record per row, and a trailer with the count and the checksum.
//!
//! Every record is a 4-byte big-endian length and a `prost` message. Rows come in the order of their tables and keys, so
//! equal tables give equal bytes.

use crate::rows::{
    JobKey, JobSubmission, JobSummary, Namespace, NodePool, PeriodicLaunch, ScalingEvents, ScalingPolicyRow,
    SchedulerConfig,
};
use crate::snapshot::{Pin, Snapshot};
use crate::store::Store;
use crate::table::TABLES;
use herdsman_model::{Allocation, Deployment, Evaluation, Job, Node};
use herdsman_proto::ServiceRegistration;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// First bytes of a stored snapshot.
pub const SNAPSHOT_MAGIC: &[u8; 8] = b"HRDSNAP\x01";
/// Version of the records this build writes.
pub const SNAPSHOT_VERSION: u32 = 1;
/// The largest record, bytes.
pub const MAX_RECORD_BYTES: usize = 64 * 1024 * 1024;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(bytes = "vec", tag = "2")]
    body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(int64, tag = "3")]
    time: i64,
    /// By the number of the table.
    #[prost(uint64, repeated, tag = "4")]
    table_indexes: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Trailer {
    #[prost(uint64, tag = "1")]
    records: u64,
    /// CRC-32C over all bytes of the records before this one, lengths included.
    #[prost(uint32, tag = "2")]
    checksum: u32,
}

/// Kinds of records. A number is never used again for something else.
mod kind {
    pub const HEADER: u32 = 1;
    pub const TRAILER: u32 = 2;
    pub const JOB: u32 = 10;
    pub const VERSION: u32 = 11;
    pub const SUBMISSION: u32 = 12;
    pub const SUMMARY: u32 = 13;
    pub const PINNED: u32 = 14;
    pub const ALLOC: u32 = 15;
    pub const EVAL: u32 = 16;
    pub const DEPLOYMENT: u32 = 17;
    pub const NODE: u32 = 18;
    pub const NODE_POOL: u32 = 19;
    pub const NAMESPACE: u32 = 20;
    pub const SERVICE: u32 = 21;
    pub const SCALING_POLICY: u32 = 22;
    pub const SCALING_EVENTS: u32 = 23;
    pub const SCHEDULER_CONFIG: u32 = 24;
    pub const PERIODIC_LAUNCH: u32 = 25;
}

/// Why a stored snapshot cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum BadSnapshot {
    #[error("stored snapshot: {0}")]
    Io(#[from] io::Error),
    #[error("stored snapshot does not begin as one; the file is something else or its start is damaged")]
    Magic,
    #[error("stored snapshot has format version {0}; this build knows {SNAPSHOT_VERSION} - upgrade this server")]
    Version(u32),
    #[error("stored snapshot holds a record of kind {0}, which this build does not know - upgrade this server")]
    Kind(u32),
    #[error("stored snapshot: record of {0} bytes is larger than the {MAX_RECORD_BYTES} allowed; the file is damaged")]
    TooLarge(usize),
    #[error("stored snapshot: record {record}: {error}; the file is damaged")]
    Record { record: u64, error: String },
    #[error("stored snapshot: its checksum does not fit its content; the file is damaged or cut short")]
    Checksum,
}

struct Out<'a, W: Write> {
    to: &'a mut W,
    checksum: u32,
    records: u64,
}

impl<W: Write> Out<'_, W> {
    fn message(&mut self, kind: u32, body: Vec<u8>) -> io::Result<()> {
        let record = Record { kind, body };
        let len = record.encoded_len();
        if len > MAX_RECORD_BYTES {
            return Err(io::Error::other(format!("record of {len} bytes is larger than {MAX_RECORD_BYTES}")));
        }
        let mut bytes = Vec::with_capacity(len + 4);
        bytes.extend_from_slice(&u32::try_from(len).map_err(io::Error::other)?.to_be_bytes());
        record.encode_raw(&mut bytes);
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes);
        self.records += 1;
        self.to.write_all(&bytes)
    }

    fn rows<'r, T: Serialize + 'r>(&mut self, kind: u32, rows: impl Iterator<Item = &'r T>) -> io::Result<()> {
        for row in rows {
            self.message(kind, serde_json::to_vec(row)?)?;
        }
        Ok(())
    }
}

impl Snapshot {
    /// Writes the stored form.
    ///
    /// # Errors
    /// Whatever writing to `to` fails with.
    pub fn write_to<W: Write>(&self, to: &mut W) -> io::Result<()> {
        to.write_all(SNAPSHOT_MAGIC)?;
        let mut out = Out { to, checksum: 0, records: 0 };
        let header = Header {
            version: SNAPSHOT_VERSION,
            index: self.index,
            time: self.time,
            table_indexes: self.table_indexes.to_vec(),
        };
        out.message(kind::HEADER, header.encode_to_vec())?;
        out.rows(kind::NAMESPACE, self.namespaces.values().map(|row| &**row))?;
        out.rows(kind::NODE_POOL, self.pools.values().map(|row| &**row))?;
        out.rows(kind::SCHEDULER_CONFIG, std::iter::once(&*self.scheduler_config))?;
        out.rows(kind::NODE, self.nodes.values().map(|row| &**row))?;
        out.rows(kind::JOB, self.jobs.values().map(|row| &**row))?;
        out.rows(kind::VERSION, self.versions.values().flat_map(|jobs| jobs.iter()).map(|row| &**row))?;
        out.rows(kind::SUBMISSION, self.submissions.values().flat_map(|texts| texts.iter()).map(|row| &**row))?;
        out.rows(kind::SUMMARY, self.summaries.values().map(|row| &**row))?;
        out.rows(kind::PINNED, self.pins.values().flat_map(|pins| pins.values()).map(|pin| &*pin.job))?;
        out.rows(kind::ALLOC, self.allocs.values().map(|row| &**row))?;
        out.rows(kind::EVAL, self.evals.values().map(|row| &**row))?;
        out.rows(kind::DEPLOYMENT, self.deployments.values().map(|row| &**row))?;
        out.rows(kind::SERVICE, self.services.values().map(|row| &**row))?;
        out.rows(kind::SCALING_POLICY, self.policies.values().map(|row| &**row))?;
        out.rows(kind::SCALING_EVENTS, self.scaling_events.values().map(|row| &**row))?;
        out.rows(kind::PERIODIC_LAUNCH, self.launches.values().map(|row| &**row))?;
        let trailer = Trailer { records: out.records, checksum: out.checksum };
        out.message(kind::TRAILER, trailer.encode_to_vec())
    }

    /// The stored form as bytes.
    ///
    /// # Errors
    /// A row is larger than a record may be.
    pub fn to_stored(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }
}

struct In<'a, R: Read> {
    from: &'a mut R,
    checksum: u32,
    records: u64,
}

impl<R: Read> In<'_, R> {
    /// The next record, and the checksum of everything before it.
    fn next(&mut self) -> Result<(Record, u32), BadSnapshot> {
        let before = self.checksum;
        let mut length = [0u8; 4];
        self.from.read_exact(&mut length)?;
        let len = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if len > MAX_RECORD_BYTES {
            return Err(BadSnapshot::TooLarge(len));
        }
        let mut bytes = vec![0u8; len];
        self.from.read_exact(&mut bytes)?;
        self.checksum = crc32c::crc32c_append(crc32c::crc32c_append(self.checksum, &length), &bytes);
        self.records += 1;
        let record = Record::decode(&*bytes).map_err(|error| self.damaged(error))?;
        Ok((record, before))
    }

    fn damaged(&self, error: impl ToString) -> BadSnapshot {
        BadSnapshot::Record { record: self.records, error: error.to_string() }
    }

    fn row<T: DeserializeOwned>(&self, record: &Record) -> Result<Arc<T>, BadSnapshot> {
        serde_json::from_slice(&record.body).map(Arc::new).map_err(|error| self.damaged(error))
    }
}

impl Store {
    /// Restores a stored snapshot.
    ///
    /// # Errors
    /// It is of a newer version, damaged or cut short.
    pub fn read_from<R: Read>(from: &mut R) -> Result<Store, BadSnapshot> {
        let mut magic = [0u8; 8];
        from.read_exact(&mut magic)?;
        if &magic != SNAPSHOT_MAGIC {
            return Err(BadSnapshot::Magic);
        }
        let mut input = In { from, checksum: 0, records: 0 };
        let mut snapshot = Snapshot::default();
        let (record, _) = input.next()?;
        if record.kind != kind::HEADER {
            return Err(BadSnapshot::Magic);
        }
        let header = Header::decode(&*record.body).map_err(|error| input.damaged(error))?;
        if header.version != SNAPSHOT_VERSION {
            return Err(BadSnapshot::Version(header.version));
        }
        snapshot.index = header.index;
        snapshot.time = header.time;
        for (place, index) in snapshot.table_indexes.iter_mut().zip(header.table_indexes.iter().take(TABLES)) {
            *place = *index;
        }
        loop {
            let (record, checksum) = input.next()?;
            if record.kind == kind::TRAILER {
                let trailer = Trailer::decode(&*record.body).map_err(|error| input.damaged(error))?;
                if trailer.checksum != checksum || trailer.records != input.records - 1 {
                    return Err(BadSnapshot::Checksum);
                }
                return Ok(Store::from_snapshot(snapshot));
            }
            restore_row(&mut snapshot, &input, &record)?;
        }
    }
}

/// Puts a row into its table and links it.
fn restore_row<R: Read>(s: &mut Snapshot, input: &In<'_, R>, record: &Record) -> Result<(), BadSnapshot> {
    match record.kind {
        kind::NAMESPACE => {
            let row: Arc<Namespace> = input.row(record)?;
            s.namespaces.insert(row.name.clone(), row);
        }
        kind::NODE_POOL => {
            let row: Arc<NodePool> = input.row(record)?;
            s.pools.insert(row.name.clone(), row);
        }
        kind::SCHEDULER_CONFIG => s.scheduler_config = input.row::<SchedulerConfig>(record)?,
        kind::NODE => {
            let row: Arc<Node> = input.row(record)?;
            s.nodes.insert(row.id, row);
        }
        kind::JOB => {
            let row: Arc<Job> = input.row(record)?;
            s.link_job(&row);
            s.jobs.insert(JobKey::of(&row), row);
        }
        kind::VERSION => {
            let row: Arc<Job> = input.row(record)?;
            // The current version is one row, not two.
            let key = JobKey::of(&row);
            let row = s.jobs.get(&key).filter(|job| ***job == *row).cloned().unwrap_or(row);
            Arc::make_mut(s.versions.entry(key).or_default()).push(row);
        }
        kind::SUBMISSION => {
            let row: Arc<JobSubmission> = input.row(record)?;
            let key = JobKey::new(&row.namespace, &row.job_id);
            Arc::make_mut(s.submissions.entry(key).or_default()).push(row);
        }
        kind::SUMMARY => {
            let row: Arc<JobSummary> = input.row(record)?;
            s.summaries.insert(JobKey::new(&row.namespace, &row.job_id), row);
        }
        kind::PINNED => {
            let row: Arc<Job> = input.row(record)?;
            let key = JobKey::of(&row);
            let row = s.job_version_by_key(&key, row.version).filter(|job| ***job == *row).cloned().unwrap_or(row);
            let version = (row.create_index, row.version);
            s.pins.entry(key).or_default().insert(version, Pin { job: row, allocs: 0 });
        }
        kind::ALLOC => {
            let row: Arc<Allocation> = input.row(record)?;
            s.link_alloc(&row);
            s.allocs.insert(row.id, row);
        }
        _ => return restore_other(s, input, record),
    }
    Ok(())
}

fn restore_other<R: Read>(s: &mut Snapshot, input: &In<'_, R>, record: &Record) -> Result<(), BadSnapshot> {
    match record.kind {
        kind::EVAL => {
            let row: Arc<Evaluation> = input.row(record)?;
            s.link_eval(&row);
            s.evals.insert(row.id, row);
        }
        kind::DEPLOYMENT => {
            let row: Arc<Deployment> = input.row(record)?;
            s.link_deployment(&row);
            s.deployments.insert(row.id, row);
        }
        kind::SERVICE => {
            let row: Arc<ServiceRegistration> = input.row(record)?;
            s.link_service(&row);
            s.services.insert(row.id.clone(), row);
        }
        kind::SCALING_POLICY => {
            let row: Arc<ScalingPolicyRow> = input.row(record)?;
            s.link_policy(&row);
            s.policies.insert(row.policy.id.clone(), row);
        }
        kind::SCALING_EVENTS => {
            let row: Arc<ScalingEvents> = input.row(record)?;
            s.scaling_events.insert(JobKey::new(&row.namespace, &row.job_id), row);
        }
        kind::PERIODIC_LAUNCH => {
            let row: Arc<PeriodicLaunch> = input.row(record)?;
            s.launches.insert(JobKey::new(&row.namespace, &row.job_id), row);
        }
        other => return Err(BadSnapshot::Kind(other)),
    }
    Ok(())
}
