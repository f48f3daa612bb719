//! A disk in memory that loses what was not synced, and fails when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskEntry, DiskFile, OpenMode};
use crate::rng::{Rng, SeededRng};

/// What survives of an unsynced write survives in pieces of this size.
const SECTOR: u64 = 512;

/// What the disk does wrong from now on; see [`SimDisk::inject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// After this many more changes (writes, syncs, resizes, names) the power fails: every later
    /// call fails, until [`SimDisk::crash`].
    PowerAfter(u64),
    /// The sync after this many successful ones fails once, and what it was to make durable may be
    /// lost by the next crash although a later sync succeeds.
    SyncAfter(u64),
    /// At most this many bytes in all files; growing beyond fails with `StorageFull`.
    Capacity(u64),
}

/// How often the disk was asked for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Data syncs of files that succeeded.
    pub syncs: u64,
    /// Syncs of directories.
    pub dir_syncs: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Changes of any kind; the unit of [`DiskFault::PowerAfter`].
    pub changes: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    Len(u64),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// What happened since the last sync, in order.
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(PathBuf, u64),
    Remove(PathBuf),
}

#[derive(Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    pending_names: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    /// Raised by each crash, so that files opened before it are dead.
    life: u64,
    power_after: Option<u64>,
    dead: bool,
    sync_after: Option<u64>,
    capacity: Option<u64>,
    stats: DiskStats,
}

/// A disk in memory. Clones share the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    rng: Arc<SeededRng>,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl SimDisk {
    /// An empty disk; what a crash keeps of unsynced data follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk { state: Arc::default(), rng: Arc::new(SeededRng::from_seed(seed)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the disk fail from now on.
    pub fn inject(&self, fault: DiskFault) {
        let mut state = self.state();
        match fault {
            DiskFault::PowerAfter(changes) => state.power_after = Some(changes),
            DiskFault::SyncAfter(syncs) => state.sync_after = Some(syncs),
            DiskFault::Capacity(bytes) => state.capacity = Some(bytes),
        }
    }

    /// Takes all injected faults back. A power failure that has happened stays.
    pub fn heal(&self) {
        let mut state = self.state();
        state.power_after = None;
        state.sync_after = None;
        state.capacity = None;
    }

    /// The machine stops and starts again: what was synced is there, of the rest any part; locks
    /// are free, files opened before fail, injected faults are gone.
    pub fn crash(&self) {
        let mut state = self.state();
        let rng = &*self.rng;
        for inode in state.inodes.values_mut() {
            for change in std::mem::take(&mut inode.pending) {
                keep_some(&mut inode.durable, change, rng);
            }
            inode.now = inode.durable.clone();
        }
        // A journal keeps name changes in order, so what survives of them is a prefix.
        let pending = std::mem::take(&mut state.pending_names);
        let kept = rng.below(pending.len() as u64 + 1);
        for change in pending.into_iter().take(usize::try_from(kept).unwrap_or(0)) {
            apply_name(&mut state.durable_names, change);
        }
        state.names = state.durable_names.clone();
        let live: BTreeSet<u64> = state.names.values().copied().collect();
        state.inodes.retain(|id, _| live.contains(id));
        state.locks.clear();
        state.life += 1;
        state.dead = false;
        state.power_after = None;
        state.sync_after = None;
        state.capacity = None;
    }

    /// Whether an injected power failure has happened.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// How often the disk was asked for what, since it was made.
    #[must_use]
    pub fn stats(&self) -> DiskStats {
        self.state().stats
    }

    /// Flips the bits of `mask` in one byte of a file, durably, as a failing medium does.
    pub fn corrupt(&self, path: &Path, offset: u64, mask: u8) -> io::Result<()> {
        let mut state = self.state();
        let id = state.find(&clean(path))?;
        let inode = state.inode(id)?;
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        for content in [&mut inode.now, &mut inode.durable] {
            if let Some(byte) = content.get_mut(at) {
                *byte ^= mask;
            }
        }
        Ok(())
    }
}

/// Applies to what is durable any part of one unsynced change.
fn keep_some(durable: &mut Vec<u8>, change: Change, rng: &SeededRng) {
    let fate = rng.below(3);
    match change {
        Change::Len(len) => {
            if fate > 0 {
                resize(durable, len);
            }
        }
        Change::Write { offset, data } => match fate {
            0 => {}
            1 => write(durable, offset, &data),
            _ => {
                let mut done = 0;
                while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
                    let at = offset + done as u64;
                    let to_edge = SECTOR - at % SECTOR;
                    let n = rest.len().min(usize::try_from(to_edge).unwrap_or(rest.len()));
                    if rng.below(2) == 0
                        && let Some(piece) = rest.get(..n)
                    {
                        write(durable, at, piece);
                    }
                    done += n;
                }
            }
        },
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, u64>, change: NameChange) {
    match change {
        NameChange::Set(path, id) => {
            names.insert(path, id);
        }
        NameChange::Remove(path) => {
            names.remove(&path);
        }
    }
}

fn resize(content: &mut Vec<u8>, len: u64) {
    content.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
}

fn write(content: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(data.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(place) = content.get_mut(start..end) {
        place.copy_from_slice(data);
    }
}

/// The path without `.` parts, so that one file has one name.
fn clean(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, Component::CurDir)).collect()
}

fn power_failed() -> io::Error {
    io::Error::other("simulated power failure")
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{}: no such file", path.display()))
}

impl State {
    fn alive(&self) -> io::Result<()> {
        if self.dead { Err(power_failed()) } else { Ok(()) }
    }

    /// Counts one change; fails when the power failed before it.
    fn change(&mut self) -> io::Result<()> {
        self.alive()?;
        if let Some(left) = &mut self.power_after {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => self.dead = true,
            }
        }
        self.alive()?;
        self.stats.changes += 1;
        Ok(())
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        self.names.get(path).copied().ok_or_else(|| not_found(path))
    }

    fn inode(&mut self, id: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| io::Error::other("the file was lost in a crash"))
    }

    fn room(&self, id: u64, len: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity else { return Ok(()) };
        let size = |inode: &Inode| inode.now.len() as u64;
        let old = self.inodes.get(&id).map_or(0, size);
        let used: u64 = self.inodes.values().map(size).sum();
        if len > old && used - old + len > capacity {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "simulated disk is full"));
        }
        Ok(())
    }

    fn set_name(&mut self, change: NameChange) {
        apply_name(&mut self.names, change.clone());
        self.pending_names.push(change);
    }

    fn parent_exists(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(dir) if dir.parent().is_some() && !self.dirs.contains(dir) => Err(not_found(dir)),
            _ => Ok(()),
        }
    }
}

struct SimFile {
    disk: SimDisk,
    id: u64,
    life: u64,
    writable: bool,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.id)
    }
}

impl SimFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        state.alive()?;
        if state.life == self.life {
            Ok(state)
        } else {
            Err(io::Error::other("the file was opened before a simulated crash"))
        }
    }

    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        if !self.writable {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading"));
        }
        let mut state = self.state()?;
        state.change()?;
        Ok(state)
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state()?.inode(self.id)?.now.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state()?;
        let content = &state.inode(self.id)?.now;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let Some(rest) = content.get(start..) else { return Ok(0) };
        let n = rest.len().min(buf.len());
        for (to, from) in buf.iter_mut().zip(rest) {
            *to = *from;
        }
        Ok(n)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.change()?;
        state.room(self.id, offset.saturating_add(data.len() as u64))?;
        state.stats.writes += 1;
        state.stats.bytes += data.len() as u64;
        let inode = state.inode(self.id)?;
        write(&mut inode.now, offset, data);
        inode.pending.push(Change::Write { offset, data: data.to_vec() });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.change()?;
        if let Some(left) = state.sync_after {
            state.sync_after = left.checked_sub(1);
            if left == 0 {
                // The kernel marks the pages clean all the same: a later sync reports success
                // without having written them.
                let inode = state.inode(self.id)?;
                for change in std::mem::take(&mut inode.pending) {
                    keep_some(&mut inode.durable, change, &self.disk.rng);
                }
                return Err(io::Error::other("simulated sync error"));
            }
        }
        state.stats.syncs += 1;
        let inode = state.inode(self.id)?;
        // Replayed rather than copied: the cost follows what changed, not the file's size.
        for change in std::mem::take(&mut inode.pending) {
            match change {
                Change::Write { offset, data } => write(&mut inode.durable, offset, &data),
                Change::Len(len) => resize(&mut inode.durable, len),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.change()?;
        state.room(self.id, len)?;
        let inode = state.inode(self.id)?;
        resize(&mut inode.now, len);
        inode.pending.push(Change::Len(len));
        Ok(())
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        if self.len()? >= len { Ok(()) } else { self.set_len(len) }
    }
}

/// Frees a lock when dropped, unless a crash did.
struct LockGuard {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let path = clean(path);
        let mut state = self.state();
        state.alive()?;
        let id = match (state.names.get(&path).copied(), mode) {
            (Some(_), OpenMode::CreateNew) => {
                let text = format!("{}: exists already", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            (Some(id), _) => id,
            (None, OpenMode::Read | OpenMode::Write) => return Err(not_found(&path)),
            (None, OpenMode::CreateNew | OpenMode::CreateOrOpen) => {
                state.parent_exists(&path)?;
                state.change()?;
                let id = state.next_inode;
                state.next_inode += 1;
                state.inodes.insert(id, Inode::default());
                state.set_name(NameChange::Set(path, id));
                id
            }
        };
        let life = state.life;
        drop(state);
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(SimFile { disk: self.clone(), id, life, writable }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (clean(from), clean(to));
        let mut state = self.state();
        let id = state.find(&from)?;
        state.parent_exists(&to)?;
        state.change()?;
        // One change of the journal: never both names, never neither.
        apply_name(&mut state.names, NameChange::Set(to.clone(), id));
        apply_name(&mut state.names, NameChange::Remove(from.clone()));
        state.pending_names.push(NameChange::Set(to, id));
        state.pending_names.push(NameChange::Remove(from));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = clean(path);
        let mut state = self.state();
        state.find(&path)?;
        state.change()?;
        state.set_name(NameChange::Remove(path));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DiskEntry>> {
        let dir = clean(dir);
        let state = self.state();
        state.alive()?;
        if dir.parent().is_some() && !state.dirs.contains(&dir) {
            return Err(not_found(&dir));
        }
        let inside = |path: &PathBuf, is_dir: bool| {
            let name = path.file_name().filter(|_| path.parent() == Some(dir.as_path()))?;
            Some(DiskEntry { name: name.to_string_lossy().into_owned(), is_dir })
        };
        let files = state.names.keys().filter_map(|path| inside(path, false));
        let mut all: Vec<_> = files.chain(state.dirs.iter().filter_map(|path| inside(path, true))).collect();
        all.sort();
        Ok(all)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.alive()?;
        // Directories are durable at once: only files are in question here.
        for part in clean(dir).ancestors() {
            if part.parent().is_some() {
                state.dirs.insert(part.to_path_buf());
            }
        }
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.stats.dir_syncs += 1;
        // One journal for all directories, as most file systems have.
        for change in std::mem::take(&mut state.pending_names) {
            apply_name(&mut state.durable_names, change);
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let path = clean(path);
        let state = self.state();
        state.alive()?;
        Ok(state.names.contains_key(&path) || state.dirs.contains(&path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let path = clean(path);
        let mut state = self.state();
        state.alive()?;
        if !state.locks.insert(path.clone()) {
            let text = format!("{}: locked by another process", path.display());
            return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
        }
        let life = state.life;
        Ok(Box::new(LockGuard { disk: self.clone(), path, life }))
    }

    fn is_instant(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> &'static Path {
        Path::new("/d/f")
    }

    fn disk(seed: u64) -> (SimDisk, Arc<dyn DiskFile>) {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("/d")).unwrap();
        let file = disk.open(path(), OpenMode::CreateNew).unwrap();
        file.write_all_at(b"kept", 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        (disk, file)
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_any_part_of_the_rest() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..64 {
            let (disk, file) = disk(seed);
            file.write_all_at(&[b'x'; 1024], 512).unwrap();
            disk.crash();
            assert!(file.len().is_err(), "opened before the crash");
            let data = disk.read(path(), 10_000).unwrap();
            assert_eq!(&data[..4], b"kept");
            outcomes.insert((data.get(600).copied(), data.get(1100).copied()));
        }
        assert!(outcomes.len() >= 4, "all, none and parts: {outcomes:?}");
    }

    #[test]
    fn names_need_a_directory_sync() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..32 {
            let (disk, _) = disk(seed);
            disk.replace(path(), b"new!").unwrap();
            disk.rename(path(), Path::new("/d/g")).unwrap();
            disk.crash();
            let moved = disk.exists(Path::new("/d/g")).unwrap();
            let name = if moved { "/d/g" } else { "/d/f" };
            assert_eq!(disk.read(Path::new(name), 10).unwrap(), b"new!");
            outcomes.insert(moved);
        }
        assert_eq!(outcomes.len(), 2);
    }

    #[test]
    fn injected_faults_fail_and_end_with_a_crash() {
        let (disk, file) = disk(1);
        disk.inject(DiskFault::Capacity(10));
        let error = file.write_all_at(&[0; 11], 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.write_all_at(&[1; 10], 0).unwrap();
        disk.inject(DiskFault::SyncAfter(1));
        file.sync_data().unwrap();
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        disk.inject(DiskFault::PowerAfter(1));
        file.write_all_at(&[2; 10], 0).unwrap();
        assert!(!disk.is_dead());
        file.sync_data().unwrap_err();
        assert!(disk.is_dead());
        disk.list(Path::new("/d")).unwrap_err();
        disk.crash();
        let data = disk.read(path(), 10).unwrap();
        assert!(data == [1; 10] || data == [2; 10], "{data:?}");
    }

    #[test]
    fn a_failed_sync_loses_what_it_was_for() {
        let lost = (0..32).filter(|&seed| {
            let (disk, file) = disk(seed);
            file.write_all_at(b"gone", 0).unwrap();
            disk.inject(DiskFault::SyncAfter(0));
            file.sync_data().unwrap_err();
            file.sync_data().unwrap();
            disk.crash();
            disk.read(path(), 10).unwrap() == b"kept"
        });
        assert!(lost.count() > 0);
    }

    #[test]
    fn locks_end_with_the_guard_or_the_crash() {
        let (disk, _) = disk(1);
        let lock = Path::new("/d/lock");
        let guard = disk.lock(lock).unwrap();
        assert_eq!(disk.lock(lock).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        disk.crash();
        let second = disk.lock(lock).unwrap();
        drop(guard);
        assert!(disk.lock(lock).is_err(), "the old guard frees nothing");
        drop(second);
        disk.lock(lock).unwrap();
    }
}
