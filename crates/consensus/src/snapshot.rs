//! Snapshot files: a head, pieces of data and an end, each a checksummed record. A snapshot is
//! written beside, synced and renamed; the one before is removed only then.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use herdsman_world::{Disk, DiskFile, OpenMode};
use prost::Message;

use crate::config::OpenError;
use crate::convert::{self, SnapshotMeta};
use crate::frame::{self, FRAME_HEAD, Kind};
use crate::machine::SnapshotWriter;
use crate::record::{SNAPSHOT_FORMAT, SnapshotData, SnapshotEnd, SnapshotRecord};

/// The largest snapshot that is read or taken from another server.
pub const MAX_SNAPSHOT_BYTES: u64 = 64 * 1024 * 1024 * 1024;
/// Data in one piece.
const PIECE_BYTES: usize = 256 * 1024;
/// The largest piece that is read.
const MAX_PIECE_BYTES: usize = 1024 * 1024;
/// The largest head.
const MAX_HEAD_BYTES: usize = 1024 * 1024;

const TEMPORARY: &str = ".tmp";

/// A snapshot file that is complete.
pub(crate) struct SnapshotFile {
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
}

impl fmt::Debug for SnapshotFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotFile({})", self.path.display())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub meta: SnapshotMeta,
    pub path: PathBuf,
    pub bytes: u64,
}

/// The snapshots of one log.
#[derive(Debug)]
pub(crate) struct SnapshotStore {
    pub disk: Arc<dyn Disk>,
    dir: PathBuf,
    current: Mutex<Option<Current>>,
    counter: AtomicU64,
}

fn snapshot_name(index: u64) -> String {
    format!("snapshot-{index:016x}.snap")
}

fn snapshot_index(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("snapshot-")?.strip_suffix(".snap")?, 16).ok()
}

impl SnapshotStore {
    /// Finds the newest whole snapshot in `dir` and removes unfinished ones. Damage is an error
    /// only when no older snapshot is whole; the caller checks that the log reaches back to it.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<SnapshotStore, OpenError> {
        let io = |error| OpenError::io(format!("read {}", dir.display()), error);
        let mut found = Vec::new();
        for entry in disk.list(dir).map_err(io)? {
            if entry.name.starts_with("snapshot-") && entry.name.ends_with(TEMPORARY) {
                disk.remove(&dir.join(&entry.name)).map_err(io)?;
            } else if let Some(index) = snapshot_index(&entry.name) {
                found.push((index, dir.join(entry.name)));
            }
        }
        found.sort_by(|a, b| b.cmp(a));
        let mut current = None;
        let mut damage = None;
        for (_, path) in found {
            match verify(&*disk, &path) {
                Ok((meta, bytes)) => {
                    current = Some(Current { meta, path, bytes });
                    break;
                }
                Err(error @ OpenError::Format { .. }) => return Err(error),
                Err(error) => {
                    tracing::error!(%error, "a snapshot cannot be used; trying an older one");
                    damage = damage.or(Some(error));
                }
            }
        }
        match (current, damage) {
            (None, Some(error)) => Err(error),
            (current, _) => Ok(SnapshotStore {
                disk,
                dir: dir.to_path_buf(),
                current: Mutex::new(current),
                counter: AtomicU64::new(0),
            }),
        }
    }

    pub fn current(&self) -> Option<Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn temporary(&self) -> PathBuf {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("snapshot-{number}{TEMPORARY}"))
    }

    /// Writes a snapshot and makes it the current one. On an error the one before stays.
    pub fn write(&self, meta: &SnapshotMeta, body: SnapshotWriter) -> io::Result<()> {
        let path = self.temporary();
        let written = self.write_file(&path, meta, body);
        self.keep_or_remove(&path, written.and_then(|bytes| self.adopt(&path, meta, bytes)))
    }

    fn write_file(&self, path: &Path, meta: &SnapshotMeta, body: SnapshotWriter) -> io::Result<u64> {
        let file = self.disk.open(path, OpenMode::CreateNew)?;
        let mut writer = PieceWriter { file, at: 0, sequence: 0, length: 0, piece: Vec::with_capacity(PIECE_BYTES) };
        writer.frame(Kind::SnapshotHead, &convert::snapshot_record(meta))?;
        body(&mut writer)?;
        writer.finish()
    }

    /// A place for a snapshot that arrives from another server.
    pub fn begin_receiving(&self) -> io::Result<SnapshotFile> {
        let path = self.temporary();
        let file = self.disk.open(&path, OpenMode::CreateNew)?;
        Ok(SnapshotFile { path, file })
    }

    /// Makes a snapshot that arrived the current one, after checking all of it.
    pub fn install(&self, received: &SnapshotFile, meta: &SnapshotMeta) -> io::Result<()> {
        let checked = received.file.sync_data().and_then(|()| {
            let (found, bytes) = verify(&*self.disk, &received.path).map_err(io::Error::other)?;
            if found.last_log_id == meta.last_log_id {
                Ok(bytes)
            } else {
                Err(io::Error::new(io::ErrorKind::InvalidData, "the snapshot is not the one that was announced"))
            }
        });
        self.keep_or_remove(&received.path, checked.and_then(|bytes| self.adopt(&received.path, meta, bytes)))
    }

    /// Drops a snapshot that did not arrive whole.
    pub fn discard(&self, received: &SnapshotFile) {
        if let Err(error) = self.disk.remove(&received.path) {
            tracing::debug!(%error, "an unfinished snapshot could not be removed");
        }
    }

    fn keep_or_remove(&self, path: &Path, result: io::Result<()>) -> io::Result<()> {
        if result.is_err()
            && let Err(error) = self.disk.remove(path)
        {
            tracing::debug!(%error, "an unfinished snapshot could not be removed");
        }
        result
    }

    fn adopt(&self, from: &Path, meta: &SnapshotMeta, bytes: u64) -> io::Result<()> {
        let index = meta.last_log_id.map_or(0, |last| last.index);
        let path = self.dir.join(snapshot_name(index));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| current.meta.last_log_id > meta.last_log_id) {
            // A newer one has been installed meanwhile.
            return self.disk.remove(from);
        }
        self.disk.rename(from, &path)?;
        self.disk.sync_dir(&self.dir)?;
        let before = current.replace(Current { meta: meta.clone(), path: path.clone(), bytes });
        drop(current);
        if let Some(before) = before.filter(|before| before.path != path)
            && let Err(error) = self.disk.remove(&before.path)
        {
            tracing::warn!(%error, "the snapshot before could not be removed");
        }
        Ok(())
    }

    /// The current snapshot, open.
    pub fn open_current(&self) -> io::Result<Option<(SnapshotMeta, SnapshotFile)>> {
        // Held while opening, so that it is not replaced and removed in between.
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = current.as_ref() else { return Ok(None) };
        let file = self.disk.open(&found.path, OpenMode::Read)?;
        Ok(Some((found.meta.clone(), SnapshotFile { path: found.path.clone(), file })))
    }
}

struct PieceWriter {
    file: Arc<dyn DiskFile>,
    at: u64,
    sequence: u64,
    length: u64,
    piece: Vec<u8>,
}

impl PieceWriter {
    fn frame(&mut self, kind: Kind, record: &impl Message) -> io::Result<()> {
        let bytes = frame::encode(kind, 0, self.sequence, record)?;
        self.file.write_all_at(&bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.sequence += 1;
        Ok(())
    }

    fn piece(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let data = Bytes::from(std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES)));
        self.length += data.len() as u64;
        self.frame(Kind::SnapshotData, &SnapshotData { data })
    }

    fn finish(mut self) -> io::Result<u64> {
        self.piece()?;
        let length = self.length;
        self.frame(Kind::SnapshotEnd, &SnapshotEnd { length })?;
        self.file.sync_data()?;
        Ok(self.at)
    }
}

impl Write for PieceWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES - self.piece.len();
        let taken = data.get(..room).unwrap_or(data);
        self.piece.extend_from_slice(taken);
        if self.piece.len() == PIECE_BYTES {
            self.piece()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a snapshot's data, checking every piece.
pub(crate) struct PieceReader {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    at: u64,
    sequence: u64,
    length: u64,
    piece: Bytes,
    ended: bool,
}

impl PieceReader {
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<(SnapshotMeta, PieceReader), OpenError> {
        let io = |error| OpenError::io(format!("read {}", path.display()), error);
        let file = disk.open(path, OpenMode::Read).map_err(io)?;
        let mut reader = PieceReader {
            file,
            path: path.to_path_buf(),
            at: 0,
            sequence: 0,
            length: 0,
            piece: Bytes::new(),
            ended: false,
        };
        let corrupt = |offset, reason| OpenError::Corrupt { file: path.to_path_buf(), offset, reason };
        let (kind, payload) = match reader.next(MAX_HEAD_BYTES) {
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(corrupt(0, error.to_string())),
            Err(error) => return Err(io(error)),
        };
        if kind != Kind::SnapshotHead {
            return Err(corrupt(0, "the file does not begin with a snapshot's head".to_owned()));
        }
        let record = SnapshotRecord::decode(payload).map_err(|error| corrupt(0, error.to_string()))?;
        if record.format > SNAPSHOT_FORMAT {
            return Err(OpenError::Format {
                file: path.to_path_buf(),
                found: record.format,
                supported: SNAPSHOT_FORMAT,
            });
        }
        let meta = convert::snapshot_meta(record).map_err(|bad| corrupt(0, bad.to_string()))?;
        Ok((meta, reader))
    }

    fn bad(&self, reason: impl fmt::Display) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, reason.to_string())
    }

    fn next(&mut self, limit: usize) -> io::Result<(Kind, Bytes)> {
        let mut bytes = vec![0; FRAME_HEAD];
        let short = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(io::ErrorKind::InvalidData, "the file ends too early"),
            _ => error,
        };
        self.file.read_exact_at(&mut bytes, self.at).map_err(short)?;
        let head = frame::head(&bytes).map_err(|damage| self.bad(damage))?;
        if head.length > limit {
            return Err(self.bad(format_args!("a record of {} bytes is larger than the {limit} allowed", head.length)));
        }
        bytes.resize(frame::frame_size(head.length), 0);
        self.file.read_exact_at(&mut bytes, self.at).map_err(short)?;
        let frame = frame::decode(&bytes, 0).map_err(|damage| self.bad(damage))?;
        if frame.sequence != self.sequence {
            return Err(self.bad(format_args!("piece {} is where {} should be", frame.sequence, self.sequence)));
        }
        let (kind, size, length) = (frame.kind, frame.size, frame.payload.len());
        self.at += size as u64;
        self.sequence += 1;
        Ok((kind, Bytes::from(bytes).slice(FRAME_HEAD..FRAME_HEAD + length)))
    }

    /// Loads the next piece; false at the end.
    fn load(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let (kind, payload) = self.next(MAX_PIECE_BYTES)?;
        match kind {
            Kind::SnapshotData => {
                self.piece = SnapshotData::decode(payload).map_err(|error| self.bad(error))?.data;
                self.length += self.piece.len() as u64;
                if self.length > MAX_SNAPSHOT_BYTES {
                    return Err(self.bad("the snapshot is larger than allowed"));
                }
                Ok(true)
            }
            Kind::SnapshotEnd => {
                let end = SnapshotEnd::decode(payload).map_err(|error| self.bad(error))?;
                if end.length != self.length {
                    return Err(self.bad(format_args!("{} bytes of {} are there", self.length, end.length)));
                }
                self.ended = true;
                Ok(false)
            }
            kind => Err(self.bad(format_args!("a record of kind {kind:?} has no place in a snapshot"))),
        }
    }
}

impl Read for PieceReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let at = self.at;
            let loaded = self.load();
            let named = loaded.map_err(|error| {
                io::Error::new(error.kind(), format!("{} at byte {at}: {error}", self.path.display()))
            });
            if !named? {
                return Ok(0);
            }
        }
        let n = buf.len().min(self.piece.len());
        let taken = self.piece.split_to(n);
        for (to, from) in buf.iter_mut().zip(&taken) {
            *to = *from;
        }
        Ok(n)
    }
}

/// Reads a whole snapshot; gives what it says about itself and its size.
pub(crate) fn verify(disk: &dyn Disk, path: &Path) -> Result<(SnapshotMeta, u64), OpenError> {
    let (meta, mut reader) = PieceReader::open(disk, path)?;
    loop {
        let offset = reader.at;
        match reader.load() {
            Ok(true) => {}
            Ok(false) => return Ok((meta, reader.at)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(OpenError::Corrupt { file: path.to_path_buf(), offset, reason: error.to_string() });
            }
            Err(error) => return Err(OpenError::io(format!("read {}", path.display()), error)),
        }
    }
}
