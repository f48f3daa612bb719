//! Opening the log: reads every segment, tells a torn end from damage in the middle.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use herdsman_world::{Disk, OpenMode};
use prost::Message;

use crate::config::OpenError;
use crate::convert;
use crate::frame::{self, Damage, FRAME_ALIGN, Frame, Kind};
use crate::log::{
    Contents, MAX_SEGMENT_BYTES, ROLL_NAME, SPARE_NAME, Segment, SegmentLog, Shared, Spare, segment_number,
};
use crate::record::{EntriesRecord, LOG_FORMAT, PurgeRecord, SegmentRecord, TruncateRecord, VoteRecord};

/// Zeros are written over a torn end in pieces of this size.
const ZERO_CHUNK: usize = 64 * 1024;

/// What reading the segments has come to so far.
struct Reading {
    salt: u64,
    /// Its cache is filled on the way, since most of the log is about to be applied.
    shared: Arc<Shared>,
    sequence: u64,
    contents: Contents,
    segments: VecDeque<Segment>,
    tail: u64,
}

/// Where something is wrong, and what.
struct Wrong {
    offset: u64,
    reason: String,
}

impl SegmentLog {
    /// Opens the log in `dir`, which exists, or begins one there with `new_salt`.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
        new_salt: u64,
        shared: Arc<Shared>,
    ) -> Result<SegmentLog, OpenError> {
        let listing = |error| OpenError::io(format!("read {}", dir.display()), error);
        let entries = disk.list(dir).map_err(listing)?;
        let mut numbers: Vec<u64> = entries.iter().filter_map(|entry| segment_number(&entry.name)).collect();
        numbers.sort_unstable();
        for name in [SPARE_NAME, ROLL_NAME] {
            if entries.iter().any(|entry| entry.name == name) {
                let path = dir.join(name);
                disk.remove(&path).map_err(|error| OpenError::io(format!("remove {}", path.display()), error))?;
            }
        }
        let mut reading = Reading {
            salt: new_salt,
            shared: Arc::clone(&shared),
            sequence: 0,
            contents: Contents::default(),
            segments: VecDeque::new(),
            tail: 0,
        };
        let newest = numbers.last().copied();
        for number in numbers {
            reading.segment(&*disk, dir, number, Some(number) == newest)?;
        }
        reading.check_complete()?;
        let mut log = SegmentLog {
            disk,
            dir: dir.to_path_buf(),
            segment_bytes,
            salt: reading.salt,
            segments: reading.segments,
            sequence: reading.sequence,
            tail: reading.tail,
            contents: reading.contents,
            failed: None,
            spare: Spare::None,
            lock: None,
            shared,
        };
        if log.segments.is_empty() {
            log.roll(0).map_err(|error| OpenError::io(format!("begin the log in {}", dir.display()), error))?;
        }
        log.publish_room();
        Ok(log)
    }
}

impl Reading {
    fn segment(&mut self, disk: &dyn Disk, dir: &Path, number: u64, newest: bool) -> Result<(), OpenError> {
        let path = dir.join(crate::log::segment_name(number));
        let io = |error| OpenError::io(format!("read {}", path.display()), error);
        let bytes = disk.read(&path, MAX_SEGMENT_BYTES).map_err(io)?;
        let corrupt =
            |wrong: Wrong| OpenError::Corrupt { file: path.clone(), offset: wrong.offset, reason: wrong.reason };
        let mut at = self.head(&path, number, &bytes)?;
        let file = disk.open(&path, OpenMode::Write).map_err(io)?;
        self.segments.push_back(Segment {
            number,
            path: path.clone(),
            file: Arc::clone(&file),
            len: bytes.len() as u64,
            last_index: None,
        });
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let wrong = |reason: String| corrupt(Wrong { offset: at as u64, reason });
            match frame::decode(rest, self.salt) {
                Ok(frame) if frame.sequence == self.sequence => {
                    self.apply(number, at as u64, &frame).map_err(wrong)?;
                    at += frame.size;
                }
                Ok(frame) => {
                    let (found, expected) = (frame.sequence, self.sequence);
                    return Err(wrong(format!("record {found} is where record {expected} should be")));
                }
                Err(damage @ Damage::Kind(_)) => return Err(wrong(damage.to_string())),
                Err(damage) if newest => {
                    self.torn(rest, damage).map_err(wrong)?;
                    erase(&*file, &bytes, at)
                        .map_err(|error| OpenError::io(format!("cut off the torn end of {}", path.display()), error))?;
                    break;
                }
                // A segment that is not the newest ends where the next one's number continues;
                // that is checked with the next one's head.
                Err(Damage::Nothing) => break,
                Err(damage) => return Err(wrong(damage.to_string())),
            }
        }
        if newest {
            // What was read may be in memory only, left by a process that was killed before it
            // synced. It must not be acted on and then be lost.
            file.sync_data().map_err(|error| OpenError::io(format!("sync {}", path.display()), error))?;
        }
        self.tail = at as u64;
        Ok(())
    }

    /// Reads the first record of a segment; gives where the next one begins.
    fn head(&mut self, path: &Path, number: u64, bytes: &[u8]) -> Result<usize, OpenError> {
        let corrupt = |reason: String| OpenError::Corrupt { file: path.to_path_buf(), offset: 0, reason };
        let frame = frame::decode(bytes, 0).map_err(|damage| corrupt(damage.to_string()))?;
        if frame.kind != Kind::Segment {
            return Err(corrupt("the segment does not begin with its head".to_owned()));
        }
        let record = SegmentRecord::decode(frame.payload).map_err(|error| corrupt(error.to_string()))?;
        if record.format > LOG_FORMAT {
            return Err(OpenError::Format { file: path.to_path_buf(), found: record.format, supported: LOG_FORMAT });
        }
        if record.number != number {
            return Err(corrupt(format!("the segment says that it is number {}", record.number)));
        }
        match self.segments.back() {
            None => {
                self.salt = record.salt;
                self.sequence = frame.sequence;
                self.contents.first = record.next_index;
                self.shared.cache().reset(record.next_index);
                self.contents.vote = record.vote.map(convert::vote);
                self.contents.purged = record.purged.map(convert::log_id);
            }
            Some(before) if before.number + 1 != number => {
                return Err(corrupt(format!("segment {} between this and the one before is missing", number - 1)));
            }
            Some(before) if frame.sequence != self.sequence => {
                return Err(OpenError::Corrupt {
                    file: before.path.clone(),
                    offset: self.tail,
                    reason: format!("records {} to {} are missing", self.sequence, frame.sequence.wrapping_sub(1)),
                });
            }
            Some(_) if record.salt != self.salt => {
                return Err(corrupt("the segment belongs to another log".to_owned()));
            }
            Some(_) => {}
        }
        self.sequence += 1;
        Ok(frame.size)
    }

    fn apply(&mut self, segment: u64, offset: u64, frame: &Frame<'_>) -> Result<(), String> {
        let parse = |error: prost::DecodeError| error.to_string();
        match frame.kind {
            Kind::Entries => {
                let record = EntriesRecord::decode(frame.payload).map_err(parse)?;
                let mut cache = self.shared.cache();
                for entry in record.entries {
                    let entry = convert::entry(entry).map_err(|bad| bad.to_string())?;
                    let (index, next) = (entry.log_id.index, self.contents.next());
                    if index != next {
                        return Err(format!("entry {index} is where entry {next} should be"));
                    }
                    self.contents.positions.push_back(crate::log::Position { log_id: entry.log_id, segment, offset });
                    if let Some(last) = self.segments.back_mut() {
                        last.last_index = last.last_index.max(Some(index));
                    }
                    cache.push(entry);
                }
            }
            Kind::Vote => {
                self.contents.vote = Some(convert::vote(VoteRecord::decode(frame.payload).map_err(parse)?));
            }
            Kind::Truncate => {
                let since = TruncateRecord::decode(frame.payload).map_err(parse)?.since;
                self.contents.truncate(since);
                self.shared.cache().truncate(since);
            }
            Kind::Purge => {
                let record = PurgeRecord::decode(frame.payload).map_err(parse)?;
                self.contents.purge(convert::log_id(record.upto.ok_or("a purge has no end")?));
                self.shared.cache().purge(self.contents.first);
            }
            kind => return Err(format!("a record of kind {kind:?} has no place in the log")),
        }
        self.sequence += 1;
        Ok(())
    }

    /// Bytes that are no record are the torn end of the log only when no later record follows.
    fn torn(&self, rest: &[u8], damage: Damage) -> Result<(), String> {
        let used = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let rest = rest.get(..used.next_multiple_of(FRAME_ALIGN)).unwrap_or(rest);
        for at in (0..rest.len()).step_by(FRAME_ALIGN).skip(1) {
            if let Ok(frame) = frame::decode(rest.get(at..).unwrap_or_default(), self.salt)
                && frame.sequence > self.sequence
            {
                return Err(format!(
                    "{damage}, but record {} follows {at} bytes later, so records that were acknowledged are lost",
                    frame.sequence
                ));
            }
        }
        if used > 0 {
            tracing::warn!(
                bytes = used,
                record = self.sequence,
                "the log ended in a record that was not finished before a crash; it was never acknowledged and is cut off"
            );
        }
        Ok(())
    }

    /// Entries before the first that is there must have been purged.
    fn check_complete(&self) -> Result<(), OpenError> {
        let Some(oldest) = self.segments.front() else { return Ok(()) };
        let purged = self.contents.purged.map_or(0, |purged| purged.index + 1);
        if self.contents.first > purged {
            return Err(OpenError::Corrupt {
                file: oldest.path.clone(),
                offset: 0,
                reason: format!(
                    "entries {purged} to {} are missing: an older segment was removed",
                    self.contents.first - 1
                ),
            });
        }
        Ok(())
    }
}

/// Writes zeros over everything from `at` on that is not zero, so that nothing of a torn record is
/// taken for a later one.
fn erase(file: &dyn herdsman_world::DiskFile, bytes: &[u8], at: usize) -> io::Result<()> {
    let zeros = [0_u8; ZERO_CHUNK];
    let rest = bytes.get(at..).unwrap_or_default();
    for (number, chunk) in rest.chunks(ZERO_CHUNK).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            let offset = at + number * ZERO_CHUNK;
            file.write_all_at(zeros.get(..chunk.len()).unwrap_or(&zeros), offset as u64)?;
        }
    }
    Ok(())
}

/// Whether a directory holds a log.
pub(crate) fn has_log(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    Ok(disk.list(dir)?.iter().any(|entry| segment_number(&entry.name).is_some()))
}
