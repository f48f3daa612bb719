//! The log store against a model, on a disk that loses power at any change.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use herdsman_world::{Disk, DiskFault, SimDisk};
use openraft::{CommittedLeaderId, EntryPayload};
use proptest::prelude::*;

use crate::config::OpenError;
use crate::convert::{Batch, Entry, LogId, Vote};
use crate::log::{CACHE_BYTES, SegmentLog, Shared, make_spare, segment_name};

const DIR: &str = "/log";
const SEGMENT: u64 = 64 * 1024;

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn open(disk: &SimDisk) -> Result<SegmentLog, OpenError> {
    disk.create_dir_all(dir()).unwrap();
    SegmentLog::open(Arc::new(disk.clone()), dir(), SEGMENT, 0x5a17, Shared::new())
}

fn id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, 1), index)
}

fn entry(term: u64, index: u64, size: usize) -> Entry {
    let command = Bytes::from(vec![u8::try_from(index % 251).unwrap() + 1; size]);
    Entry { log_id: id(term, index), payload: EntryPayload::Normal(Batch(vec![command])) }
}

/// What the log should hold.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: Vec<Entry>,
}

impl Model {
    fn next(&self) -> u64 {
        self.entries.last().map(|entry| entry.log_id).or(self.purged).map_or(0, |last| last.index + 1)
    }

    fn of(log: &SegmentLog) -> Model {
        let entries = log.read(0, u64::MAX, usize::MAX).unwrap();
        Model { vote: log.vote(), purged: log.purged(), entries }
    }

    fn apply(&mut self, step: &Step, term: u64) {
        match *step {
            Step::Append(count, size) => {
                for _ in 0..count {
                    self.entries.push(entry(term, self.next(), size));
                }
            }
            Step::Vote => self.vote = Some(Vote::new(term, 1)),
            Step::Truncate(back) => {
                let keep = self.entries.len().saturating_sub(back);
                self.entries.truncate(keep);
            }
            Step::Purge(count) => {
                let count = count.min(self.entries.len());
                if let Some(last) = self.entries.drain(..count).next_back() {
                    self.purged = Some(last.log_id);
                }
            }
            Step::Skip(ahead) => {
                self.entries.clear();
                self.purged = Some(id(term, self.next() + ahead));
            }
            Step::Reopen | Step::Spare => {}
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize, usize),
    Vote,
    Truncate(usize),
    Purge(usize),
    /// A snapshot from another server is ahead of the log.
    Skip(u64),
    Spare,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..5_usize, prop_oneof![0..200_usize, 3000..30_000_usize]).prop_map(|(n, size)| Step::Append(n, size)),
        2 => Just(Step::Vote),
        2 => (1..6_usize).prop_map(Step::Truncate),
        2 => (1..12_usize).prop_map(Step::Purge),
        1 => (1..20_u64).prop_map(Step::Skip),
        2 => Just(Step::Spare),
        1 => Just(Step::Reopen),
    ]
}

/// Does one step as the store would; an error is the disk's.
fn perform(log: &mut SegmentLog, disk: &SimDisk, model: &Model, step: &Step, term: u64) -> std::io::Result<()> {
    match *step {
        Step::Append(count, size) => {
            let from = model.next();
            log.append((from..from + count as u64).map(|index| entry(term, index, size)).collect())
        }
        Step::Vote => log.save_vote(Vote::new(term, 1)),
        Step::Truncate(back) => {
            let keep = model.entries.len().saturating_sub(back);
            model.entries.get(keep).map_or(Ok(()), |first| log.truncate(first.log_id.index))
        }
        Step::Purge(count) => {
            let count = count.min(model.entries.len());
            count.checked_sub(1).map_or(Ok(()), |last| log.purge(model.entries[last].log_id))
        }
        Step::Skip(ahead) => {
            // The store is told to drop what the snapshot covers.
            log.purge(id(term, Model { entries: Vec::new(), ..model.clone() }.next() + ahead))
        }
        Step::Spare => match log.wants_spare() {
            Some((path, len)) => {
                let made = make_spare(disk, &path, len);
                log.spare_made(made.as_ref().ok().map(|()| len));
                made
            }
            None => Ok(()),
        },
        Step::Reopen => Ok(()),
    }
}

fn skip_fix(model: &mut Model, step: &Step, term: u64) {
    if let Step::Skip(ahead) = step {
        // Purging may end within the log: what is beyond stays.
        let from = Model { entries: Vec::new(), ..model.clone() }.next();
        let upto = from + ahead;
        model.entries.retain(|entry| entry.log_id.index > upto);
        model.purged = Some(id(term, upto));
    } else {
        model.apply(step, term);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_log_holds_what_the_model_holds(steps in prop::collection::vec(step(), 1..60)) {
        let disk = SimDisk::new(1);
        let mut log = open(&disk).unwrap();
        let mut model = Model::default();
        for (term, step) in (1..).zip(&steps) {
            perform(&mut log, &disk, &model, step, term).unwrap();
            skip_fix(&mut model, step, term);
            if matches!(step, Step::Reopen) {
                drop(log);
                log = open(&disk).unwrap();
            }
            prop_assert_eq!(&Model::of(&log), &model);
            let cached = log.shared.cache.lock().unwrap().get(model.next().saturating_sub(1), u64::MAX, usize::MAX);
            if let (Some(cached), Some(last)) = (cached, model.entries.last())
                && !cached.is_empty()
            {
                prop_assert_eq!(&cached, &vec![last.clone()]);
            }
        }
    }

    /// Power fails at any change. What was acknowledged is there, and of the step in flight either
    /// everything, or for an append of several records a beginning.
    #[test]
    fn acknowledged_steps_survive_a_crash_and_nothing_is_invented(
        steps in prop::collection::vec(step(), 1..40),
        power in 0..160_u64,
        seed in any::<u64>(),
        again in 0..12_u64,
    ) {
        let disk = SimDisk::new(seed);
        disk.inject(DiskFault::PowerAfter(power));
        let mut before = Model::default();
        let mut after = Model::default();
        if let Ok(mut log) = open(&disk) {
            for (term, step) in (1..).zip(&steps) {
                let mut next = before.clone();
                skip_fix(&mut next, step, term);
                after = next.clone();
                if perform(&mut log, &disk, &before, step, term).is_err() {
                    break;
                }
                before = next;
            }
        }
        disk.crash();
        // And once more while it is being opened.
        disk.inject(DiskFault::PowerAfter(again));
        drop(open(&disk));
        disk.crash();
        let log = open(&disk).unwrap();
        let found = Model::of(&log);
        prop_assert!(found == before || found == after, "found {found:?}\nacknowledged {before:?}\nin flight {after:?}");
        // And it goes on from there.
        let mut log = log;
        let mut model = found;
        perform(&mut log, &disk, &model, &Step::Append(2, 10), 99).unwrap();
        model.apply(&Step::Append(2, 10), 99);
        drop(log);
        prop_assert_eq!(Model::of(&open(&disk).unwrap()), model);
    }

    /// One flipped bit in what is stored is noticed, or hits a place that holds nothing, or is in the
    /// very last record, where it cannot be told from a torn one.
    #[test]
    fn damage_is_never_taken_for_data(count in 3..40_u64, at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let disk = SimDisk::new(1);
        let mut log = open(&disk).unwrap();
        for index in 0..count {
            log.append(vec![entry(1, index, 1500)]).unwrap();
        }
        let good = Model::of(&log);
        let tail = log.tail;
        let name = segment_name(log.segments.back().unwrap().number);
        drop(log);
        let path = dir().join(name);
        let offset = at.index(usize::try_from(tail).unwrap()) as u64;
        disk.corrupt(&path, offset, 1 << bit).unwrap();
        match open(&disk) {
            Err(OpenError::Corrupt { file, .. }) => prop_assert_eq!(file, path),
            Err(error) => prop_assert!(false, "{}", error),
            Ok(log) => {
                let found = Model::of(&log);
                let short = good.entries.len() - 1;
                prop_assert!(
                    found == good || (offset + 1600 > tail && found.entries == good.entries[..short]),
                    "offset {} of {}: {} entries", offset, tail, found.entries.len()
                );
            }
        }
    }
}

#[test]
fn damage_in_the_middle_names_file_and_offset() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).unwrap();
    let first = log.tail;
    for index in 0..3 {
        log.append(vec![entry(1, index, 100)]).unwrap();
    }
    drop(log);
    let path = dir().join(segment_name(0));
    disk.corrupt(&path, first + 40, 1).unwrap();
    let text = open(&disk).unwrap_err().to_string();
    assert!(text.starts_with(&format!("/log/log-0000000000000000.seg is damaged at byte {first}:")), "{text}");
    assert!(text.contains("records that were acknowledged are lost"), "{text}");
}

#[test]
fn a_missing_segment_is_noticed() {
    for missing in 0..3 {
        let disk = SimDisk::new(1);
        let mut log = open(&disk).unwrap();
        let mut index = 0;
        while log.segments.len() < 4 {
            log.append(vec![entry(1, index, 20_000)]).unwrap();
            index += 1;
        }
        drop(log);
        disk.remove(&dir().join(segment_name(missing))).unwrap();
        let error = open(&disk).unwrap_err();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("missing"), "{error}");
    }
}

#[test]
fn a_newer_format_is_refused() {
    use crate::frame::{Kind, encode};
    use crate::record::SegmentRecord;
    let disk = SimDisk::new(1);
    disk.create_dir_all(dir()).unwrap();
    let record = SegmentRecord { format: 2, ..SegmentRecord::default() };
    let head = encode(Kind::Segment, 0, 0, &record).unwrap();
    disk.replace(&dir().join(segment_name(0)), &head).unwrap();
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, OpenError::Format { found: 2, supported: 1, .. }), "{error}");
}

#[test]
fn a_failed_sync_ends_all_writing_and_loses_nothing_acknowledged() {
    for seed in 0..32 {
        let disk = SimDisk::new(seed);
        let mut log = open(&disk).unwrap();
        log.append(vec![entry(1, 0, 10)]).unwrap();
        disk.inject(DiskFault::SyncAfter(0));
        log.append(vec![entry(1, 1, 2000)]).unwrap_err();
        disk.heal();
        assert!(log.shared.failure.borrow().is_some());
        let error = log.append(vec![entry(1, 1, 10)]).unwrap_err();
        assert!(error.to_string().contains("simulated sync error"), "{error}");
        log.save_vote(Vote::new(2, 1)).unwrap_err();
        drop(log);
        disk.crash();
        let found = Model::of(&open(&disk).unwrap()).entries;
        assert_eq!(found[0], entry(1, 0, 10));
        assert!(found.len() == 1 || found[1..] == [entry(1, 1, 2000)], "{found:?}");
    }
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).unwrap();
    disk.inject(DiskFault::Capacity(SEGMENT + 1000));
    let mut index = 0;
    let error = loop {
        match log.reserve(5000) {
            Ok(()) => log.append(vec![entry(1, index, 4800)]).unwrap(),
            Err(error) => break error,
        }
        index += 1;
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(log.shared.failure.borrow().is_none());
    assert!(index > 5);
    // A vote still fits.
    log.save_vote(Vote::new(9, 1)).unwrap();
    disk.heal();
    log.reserve(5000).unwrap();
    log.append(vec![entry(1, index, 4800)]).unwrap();
    drop(log);
    let found = Model::of(&open(&disk).unwrap());
    assert_eq!(found.next(), index + 1);
    assert_eq!(found.vote, Some(Vote::new(9, 1)));
}

#[test]
fn an_append_costs_one_sync_and_one_write() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).unwrap();
    for index in 0..20 {
        let before = disk.stats();
        log.append(vec![entry(1, index, 500)]).unwrap();
        let after = disk.stats();
        assert_eq!((after.syncs - before.syncs, after.writes - before.writes), (1, 1));
        assert_eq!(after.dir_syncs, before.dir_syncs);
    }
}

#[test]
fn purged_segments_are_removed() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).unwrap();
    for index in 0..40 {
        log.append(vec![entry(1, index, 10_000)]).unwrap();
    }
    let before = log.segments.len();
    log.purge(id(1, 38)).unwrap();
    assert!(before > 5 && log.segments.len() <= 2, "{before} to {}", log.segments.len());
    let left = disk.list(dir()).unwrap().len();
    assert_eq!(left, log.segments.len());
    drop(log);
    let found = Model::of(&open(&disk).unwrap());
    assert_eq!(found.entries, [entry(1, 39, 10_000)]);
}

#[test]
fn the_cache_is_bounded_and_older_entries_come_from_disk() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).unwrap();
    let size = 100_000;
    let count = (CACHE_BYTES / size) as u64 + 20;
    for index in 0..count {
        log.append(vec![entry(1, index, size)]).unwrap();
    }
    let cache = log.shared.cache.lock().unwrap();
    assert!(cache.get(0, 1, usize::MAX).is_none());
    let newest = cache.get(count - 3, count, usize::MAX).unwrap();
    assert_eq!(newest.len(), 3);
    assert_eq!(cache.get(count - 3, count, size * 2 + 200).unwrap().len(), 2);
    drop(cache);
    assert_eq!(log.read(0, 3, usize::MAX).unwrap(), [entry(1, 0, size), entry(1, 1, size), entry(1, 2, size)]);
    assert_eq!(log.read(0, 3, size).unwrap().len(), 1);
}
