//! The log on disk: segments of records that are only ever added to. Everything here blocks on the
//! disk; `store` calls it from async code.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use herdsman_world::{Disk, DiskFile, OpenMode};
use prost::Message;
use tokio::sync::watch;

use crate::convert::{self, Entry, LogId, Vote};
use crate::frame::{self, FRAME_HEAD, Kind, MAX_PAYLOAD};
use crate::record::{EntriesRecord, LOG_FORMAT, PurgeRecord, SegmentRecord, TruncateRecord};

/// The newest entries are kept in memory up to this many bytes.
pub const CACHE_BYTES: usize = 4 * 1024 * 1024;
/// The first segment of a new log is at most this large, so that the first start is quick.
pub const FIRST_SEGMENT_BYTES: u64 = 1024 * 1024;
/// The smallest segment size that can be configured.
pub const MIN_SEGMENT_BYTES: u64 = 64 * 1024;
/// The largest segment.
pub const MAX_SEGMENT_BYTES: u64 = 1024 * 1024 * 1024;
/// Room that entries leave in a segment for votes and purges, so that these need no new segment
/// when the disk is full.
const RESERVED_BYTES: u64 = 8 * 1024;
/// Entries of one append go into one record up to this size.
const RECORD_BYTES: usize = 16 * 1024 * 1024;

/// The next segment, made ready beforehand.
pub(crate) const SPARE_NAME: &str = "spare.tmp";
/// A segment on its way to its name.
pub(crate) const ROLL_NAME: &str = "roll.tmp";

/// What other threads see without waiting for a write.
#[derive(Debug)]
pub(crate) struct Shared {
    pub cache: Mutex<Cache>,
    /// Bytes of entries the newest segment still takes.
    pub room: AtomicU64,
    /// Why writing has failed for good.
    pub failure: watch::Sender<Option<Arc<str>>>,
}

impl Shared {
    pub fn new() -> Arc<Shared> {
        Arc::new(Shared { cache: Mutex::default(), room: AtomicU64::new(0), failure: watch::Sender::new(None) })
    }

    pub fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The newest entries.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    first: u64,
    entries: VecDeque<(Entry, usize)>,
    bytes: usize,
}

impl Cache {
    /// Entries from `start` to before `end`, as far as there are any, stopping after `bytes`; none
    /// when `start` is older than the cache.
    pub fn get(&self, start: u64, end: u64, bytes: usize) -> Option<Vec<Entry>> {
        let skip = usize::try_from(start.checked_sub(self.first)?).ok()?;
        let want = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut total = 0;
        let mut found = Vec::new();
        for (entry, size) in self.entries.iter().skip(skip).take(want) {
            if !found.is_empty() && total + size > bytes {
                break;
            }
            total += size;
            found.push(entry.clone());
        }
        Some(found)
    }

    pub fn push(&mut self, entry: Entry) {
        let size = convert::entry_size(&entry);
        self.bytes += size;
        self.entries.push_back((entry, size));
        while self.bytes > CACHE_BYTES && self.entries.len() > 1 {
            self.pop_front();
        }
    }

    fn pop_front(&mut self) {
        if let Some((_, size)) = self.entries.pop_front() {
            self.bytes -= size;
            self.first += 1;
        }
    }

    pub fn truncate(&mut self, since: u64) {
        while self.first + self.entries.len() as u64 > since {
            match self.entries.pop_back() {
                Some((_, size)) => self.bytes -= size,
                None => self.first = since,
            }
        }
    }

    pub fn purge(&mut self, next: u64) {
        while self.first < next && !self.entries.is_empty() {
            self.pop_front();
        }
        self.first = self.first.max(next);
    }

    /// Empty, with `next` as the index of the next entry.
    pub fn reset(&mut self, next: u64) {
        *self = Cache { first: next, ..Cache::default() };
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub log_id: LogId,
    pub segment: u64,
    pub offset: u64,
}

impl Position {
    fn is_same_record(&self, other: &Position) -> bool {
        self.segment == other.segment && self.offset == other.offset
    }
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub number: u64,
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub len: u64,
    /// The highest index of any entry written in it.
    pub last_index: Option<u64>,
}

/// What the records of a log add up to.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub vote: Option<Vote>,
    pub purged: Option<LogId>,
    /// Index of `positions[0]`.
    pub first: u64,
    pub positions: VecDeque<Position>,
}

impl Contents {
    /// The index the next entry must have.
    pub fn next(&self) -> u64 {
        self.first + self.positions.len() as u64
    }

    /// Where the entry at `index` is.
    pub fn position(&self, index: u64) -> Option<Position> {
        let skip = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.positions.get(skip).copied()
    }

    pub fn last(&self) -> Option<LogId> {
        self.positions.back().map(|position| position.log_id).or(self.purged)
    }

    pub fn truncate(&mut self, since: u64) {
        if since <= self.first {
            self.positions.clear();
            self.first = since;
        } else {
            self.positions.truncate(usize::try_from(since - self.first).unwrap_or(usize::MAX));
        }
    }

    pub fn purge(&mut self, upto: LogId) {
        let next = upto.index + 1;
        while self.first < next && self.positions.pop_front().is_some() {
            self.first += 1;
        }
        self.first = self.first.max(next);
        if self.purged.is_none_or(|purged| purged.index < upto.index) {
            self.purged = Some(upto);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    None,
    Preparing,
    Ready(u64),
}

/// Keeps other processes out of the directory.
pub(crate) struct DirLock(pub Box<dyn Send + Sync>);

impl std::fmt::Debug for DirLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DirLock(_held) = self;
        f.write_str("DirLock")
    }
}

/// The log on disk.
#[derive(Debug)]
pub(crate) struct SegmentLog {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) segment_bytes: u64,
    pub(crate) salt: u64,
    /// Oldest first; the last one is written to.
    pub(crate) segments: VecDeque<Segment>,
    /// Sequence number of the next record.
    pub(crate) sequence: u64,
    /// Where the next record goes in the newest segment.
    pub(crate) tail: u64,
    pub(crate) contents: Contents,
    pub(crate) failed: Option<Arc<str>>,
    pub(crate) spare: Spare,
    /// Held as long as anything may be written.
    pub(crate) lock: Option<DirLock>,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) fn segment_name(number: u64) -> String {
    format!("log-{number:016x}.seg")
}

pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".seg")?;
    u64::from_str_radix(digits, 16).ok().filter(|number| segment_name(*number) == name)
}

fn full(size: usize) -> u64 {
    frame::frame_size(size) as u64
}

impl SegmentLog {
    /// The vote that was saved last.
    pub fn vote(&self) -> Option<Vote> {
        self.contents.vote
    }

    /// The last entry that was purged.
    pub fn purged(&self) -> Option<LogId> {
        self.contents.purged
    }

    /// The last entry, or what was purged when there is none.
    pub fn last(&self) -> Option<LogId> {
        self.contents.last()
    }

    /// Adds entries that follow the last one, durably. They are readable afterwards.
    pub fn append(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        let mut rest = entries.into_iter().peekable();
        while rest.peek().is_some() {
            let mut taken = Vec::new();
            let mut record = EntriesRecord::default();
            let mut bytes = 0;
            while let Some(entry) = rest.next_if(|next| bytes == 0 || bytes + convert::entry_size(next) < RECORD_BYTES)
            {
                bytes += convert::entry_size(&entry);
                record.entries.push(convert::entry_record(&entry));
                taken.push(entry);
            }
            self.append_record(&record, taken)?;
        }
        Ok(())
    }

    /// One record, one sync. A record that is not whole after a crash was never acknowledged, since
    /// the next is only begun after the sync.
    fn append_record(&mut self, record: &EntriesRecord, entries: Vec<Entry>) -> io::Result<()> {
        for (at, entry) in (self.contents.next()..).zip(&entries) {
            if entry.log_id.index != at {
                let text = format!("entry {} does not follow {at}", entry.log_id.index);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        let (segment, offset) = self.write(Kind::Entries, record, RESERVED_BYTES)?;
        self.sync()?;
        let mut cache = self.shared.cache();
        for entry in entries {
            let log_id = entry.log_id;
            self.contents.positions.push_back(Position { log_id, segment, offset });
            if let Some(active) = self.segments.back_mut() {
                active.last_index = active.last_index.max(Some(log_id.index));
            }
            cache.push(entry);
        }
        Ok(())
    }

    /// Saves the vote durably.
    pub fn save_vote(&mut self, vote: Vote) -> io::Result<()> {
        self.write(Kind::Vote, &convert::vote_record(&vote), 0)?;
        self.sync()?;
        self.contents.vote = Some(vote);
        Ok(())
    }

    /// Drops entries from `since` on, durably.
    pub fn truncate(&mut self, since: u64) -> io::Result<()> {
        self.write(Kind::Truncate, &TruncateRecord { since }, 0)?;
        self.sync()?;
        self.contents.truncate(since);
        self.shared.cache().truncate(since);
        Ok(())
    }

    /// Drops entries up to `upto`, durably, and the segments that hold nothing else.
    pub fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.write(Kind::Purge, &PurgeRecord { upto: Some(convert::log_id_record(&upto)) }, 0)?;
        // Every record is synced before the next is written: only the last one can be torn.
        self.sync()?;
        self.contents.purge(upto);
        self.shared.cache().purge(self.contents.first);
        let spent = |segment: &Segment| segment.last_index <= Some(upto.index);
        let mut removed = false;
        while self.segments.len() > 1 && self.segments.front().is_some_and(spent) {
            if let Some(segment) = self.segments.pop_front() {
                self.disk.remove(&segment.path)?;
                removed = true;
            }
        }
        if removed {
            self.disk.sync_dir(&self.dir)?;
        }
        Ok(())
    }

    /// Makes sure that a record of `bytes` fits without a new segment. Fails, and leaves the log as
    /// it is, when the disk has no room.
    pub fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        self.check()?;
        self.make_room(full(bytes), RESERVED_BYTES)
    }

    /// Whether a spare segment should be made now, and how large. The caller makes it with
    /// [`make_spare`] and tells the outcome with [`SegmentLog::spare_made`].
    pub fn wants_spare(&mut self) -> Option<(PathBuf, u64)> {
        let len = self.segments.back()?.len;
        if self.spare != Spare::None || self.failed.is_some() || self.tail < len / 2 {
            return None;
        }
        self.spare = Spare::Preparing;
        Some((self.dir.join(SPARE_NAME), self.segment_bytes))
    }

    /// The spare is there, or could not be made.
    pub fn spare_made(&mut self, len: Option<u64>) {
        self.spare = len.map_or(Spare::None, Spare::Ready);
    }

    /// Entries from `start` to before `end`, read from disk, stopping after `bytes`.
    pub fn read(&self, start: u64, end: u64, bytes: usize) -> io::Result<Vec<Entry>> {
        let mut found: Vec<Entry> = Vec::new();
        let mut total = 0;
        let mut at = start.max(self.contents.first);
        let end = end.min(self.contents.next());
        while at < end {
            let Some(position) = self.contents.position(at) else { break };
            let before = at;
            for entry in self.read_record(&position)? {
                // A record may hold entries that have been cut off since and are elsewhere now.
                let here = |other: Position| other.is_same_record(&position) && other.log_id == entry.log_id;
                if at >= end || !self.contents.position(at).is_some_and(here) {
                    continue;
                }
                total += convert::entry_size(&entry);
                if !found.is_empty() && total > bytes {
                    return Ok(found);
                }
                found.push(entry);
                at += 1;
            }
            if at == before {
                let text = format!("log entry {at} is not where it was written");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok(found)
    }

    fn read_record(&self, position: &Position) -> io::Result<Vec<Entry>> {
        let segment = self.segments.iter().find(|segment| segment.number == position.segment);
        let segment = segment.ok_or_else(|| io::Error::other("the entry's segment has been removed"))?;
        let damaged = |reason: String| {
            let text = format!("{} is damaged at byte {}: {reason}", segment.path.display(), position.offset);
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let mut bytes = vec![0; FRAME_HEAD];
        segment.file.read_exact_at(&mut bytes, position.offset)?;
        let head = frame::head(&bytes).map_err(|damage| damaged(damage.to_string()))?;
        bytes.resize(FRAME_HEAD + head.length, 0);
        segment.file.read_exact_at(&mut bytes, position.offset)?;
        let frame = frame::decode(&bytes, self.salt).map_err(|damage| damaged(damage.to_string()))?;
        let record = EntriesRecord::decode(frame.payload).map_err(|error| damaged(error.to_string()))?;
        let entries: Result<Vec<_>, _> = record.entries.into_iter().map(convert::entry).collect();
        entries.map_err(|bad| damaged(bad.to_string()))
    }

    /// Nothing is written after this, and another process may open the directory.
    pub fn close(&mut self) {
        self.failed.get_or_insert_with(|| "it is closed".into());
        self.shared.room.store(0, Ordering::Release);
        self.lock = None;
    }

    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some(reason) => Err(io::Error::other(format!("the log takes no more: {reason}"))),
            None => Ok(()),
        }
    }

    /// Nothing is written after this.
    fn fail(&mut self, doing: &str, error: io::Error) -> io::Error {
        let text = format!("{doing} in {}: {error}", self.dir.display());
        tracing::error!(error = %text, "the log has failed; no more commands are taken until a restart");
        let reason: Arc<str> = text.as_str().into();
        self.failed = Some(Arc::clone(&reason));
        self.shared.room.store(0, Ordering::Release);
        self.shared.failure.send_replace(Some(reason));
        io::Error::new(error.kind(), text)
    }

    fn sync(&mut self) -> io::Result<()> {
        let Some(active) = self.segments.back() else { return Ok(()) };
        match active.file.sync_data() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail("sync", error)),
        }
    }

    /// Writes a record where the last one ended; gives its segment and offset.
    fn write(&mut self, kind: Kind, payload: &impl Message, reserve: u64) -> io::Result<(u64, u64)> {
        self.check()?;
        let length = payload.encoded_len();
        if length > MAX_PAYLOAD {
            let text = format!("a record of {length} bytes is larger than the {MAX_PAYLOAD} allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.make_room(full(length), reserve)?;
        let bytes = frame::encode(kind, self.salt, self.sequence, payload)?;
        let offset = self.tail;
        let Some(active) = self.segments.back() else {
            return Err(io::Error::other("the log has no segment"));
        };
        let number = active.number;
        if let Err(error) = active.file.write_all_at(&bytes, offset) {
            // Part of the record may be there, and a second try could be torn in two.
            return Err(self.fail("write", error));
        }
        self.tail += bytes.len() as u64;
        self.sequence += 1;
        self.publish_room();
        Ok((number, offset))
    }

    pub(crate) fn publish_room(&self) {
        let len = self.segments.back().map_or(0, |active| active.len);
        let room = len.saturating_sub(self.tail + RESERVED_BYTES);
        self.shared.room.store(room, Ordering::Release);
    }

    fn make_room(&mut self, need: u64, reserve: u64) -> io::Result<()> {
        let fits = self.segments.back().is_some_and(|active| self.tail + need + reserve <= active.len);
        if fits { Ok(()) } else { self.roll(need) }
    }

    /// Begins a new segment. Until it has its name a failure changes nothing.
    pub(crate) fn roll(&mut self, need: u64) -> io::Result<()> {
        let number = self.segments.back().map_or(0, |active| active.number + 1);
        let usual = if number == 0 { self.segment_bytes.min(FIRST_SEGMENT_BYTES) } else { self.segment_bytes };
        let wanted = usual.max(need.saturating_add(2 * RESERVED_BYTES));
        if wanted > MAX_SEGMENT_BYTES {
            let text = format!("a segment of {wanted} bytes is larger than the {MAX_SEGMENT_BYTES} allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (from, len) = match self.spare {
            Spare::Ready(len) if len >= wanted => {
                self.spare = Spare::None;
                (self.dir.join(SPARE_NAME), len)
            }
            _ => (self.dir.join(ROLL_NAME), wanted),
        };
        let file = match self.begin_segment(&from, number, len) {
            Ok(file) => file,
            Err(error) => {
                // What is left of it would only take room.
                if let Err(leftover) = self.disk.remove(&from) {
                    tracing::debug!(error = %leftover, "the unfinished segment could not be removed");
                }
                return Err(error);
            }
        };
        let path = self.dir.join(segment_name(number));
        let named = self.disk.rename(&from, &path).and_then(|()| self.disk.sync_dir(&self.dir));
        if let Err(error) = named {
            return Err(self.fail("name a new segment", error));
        }
        let head = full(self.segment_record(number).encoded_len());
        self.segments.push_back(Segment { number, path, file, len, last_index: None });
        self.sequence += 1;
        self.tail = head;
        self.publish_room();
        Ok(())
    }

    fn segment_record(&self, number: u64) -> SegmentRecord {
        SegmentRecord {
            format: LOG_FORMAT,
            number,
            salt: self.salt,
            vote: self.contents.vote.as_ref().map(convert::vote_record),
            purged: self.contents.purged.as_ref().map(convert::log_id_record),
            next_index: self.contents.next(),
        }
    }

    fn begin_segment(&self, path: &Path, number: u64, len: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = make_segment_file(&*self.disk, path, len)?;
        // The head is checked before the salt is known.
        let head = frame::encode(Kind::Segment, 0, self.sequence, &self.segment_record(number))?;
        file.write_all_at(&head, 0)?;
        file.sync_data()?;
        Ok(file)
    }
}

fn make_segment_file(disk: &dyn Disk, path: &Path, len: u64) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(path, OpenMode::CreateOrOpen)?;
    if !path.ends_with(SPARE_NAME) && !file.is_empty()? {
        // Left over from an attempt that failed.
        file.set_len(0)?;
    }
    file.preallocate(len)?;
    Ok(file)
}

/// Makes the spare segment; in the background, while the log is being written to.
pub(crate) fn make_spare(disk: &dyn Disk, path: &Path, len: u64) -> io::Result<()> {
    let made = make_segment_file(disk, path, len).and_then(|file| file.sync_data());
    if made.is_err()
        && let Err(error) = disk.remove(path)
    {
        tracing::debug!(%error, "the unfinished spare segment could not be removed");
    }
    made
}
