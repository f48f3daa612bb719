//! Output of the task: from a pipe into numbered files `<base>.<N>`, the
//! newest with the highest number.
//!
//! A file is closed at a line's end when the next line would make it larger
//! than allowed. The task is never made to wait for the disk: what cannot be
//! written is counted and reported.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use crate::messages::LogPlan;
use crate::sys::{self, Errno, Sys};

/// How much is read at once.
pub const CHUNK: usize = 32 << 10;
/// How far a file may grow above its limit to finish a line.
const LINE_ALLOWANCE: u64 = 32 << 10;
/// Names tried when somebody has put something in the way of the next file.
const MAX_NAME_TRIES: u64 = 16;
/// File numbers above this are not ours.
const MAX_INDEX: u64 = 1 << 53;
/// Log directory entries looked at for older files.
const MAX_DIR_ENTRIES: usize = 100_000;

/// One stream of output.
pub struct Pump {
    /// The pipe, until its end.
    pub pipe: Option<OwnedFd>,
    dir: OwnedFd,
    dir_path: Vec<u8>,
    base: Vec<u8>,
    file: OwnedFd,
    index: u64,
    size: u64,
    at_line_start: bool,
    max_size: u64,
    max_files: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes that could not be written.
    pub lost: u64,
    /// Why, the first time.
    pub lost_reason: Option<Errno>,
}

fn name(base: &[u8], index: u64) -> Vec<u8> {
    let mut out = base.to_vec();
    out.push(b'.');
    out.extend_from_slice(index.to_string().as_bytes());
    out
}

/// Numbers of the files `<base>.<N>` in the directory.
fn existing(dir_path: &[u8], base: &[u8]) -> Vec<u64> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let path = std::ffi::OsStr::from_bytes(dir_path);
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut out: Vec<u64> = entries
        .take(MAX_DIR_ENTRIES)
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_vec();
            let number = file.strip_prefix(base)?.strip_prefix(b".")?;
            std::str::from_utf8(number).ok()?.parse().ok().filter(|n| *n < MAX_INDEX)
        })
        .collect();
    out.sort_unstable();
    out
}

impl Pump {
    /// Opens the newest file of `base`, or the first.
    pub fn open(plan: &LogPlan, base: &[u8]) -> Sys<Pump> {
        let flags = sys::O_RDONLY | sys::O_DIRECTORY | sys::O_NOFOLLOW;
        let dir = sys::open_at(sys::AT_FDCWD, &plan.dir, flags, 0)?;
        let (max_size, max_files) = (plan.max_size.max(1), u64::from(plan.max_files.max(1)));
        let (file, index, size, at_line_start) = reopen(&dir, &plan.dir, base, max_files)?;
        Ok(Pump {
            pipe: None,
            dir,
            dir_path: plan.dir.clone(),
            base: base.to_vec(),
            file,
            index,
            size,
            at_line_start,
            max_size,
            max_files,
            received: 0,
            lost: 0,
            lost_reason: None,
        })
    }

    /// Moves what the pipe holds now, at most one chunk. False when there was
    /// nothing.
    pub fn pump(&mut self, buf: &mut Vec<u8>) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        buf.resize(CHUNK, 0);
        match sys::read_fd(pipe.as_raw_fd(), buf) {
            Ok(0) => {
                self.pipe = None;
                false
            }
            Ok(n) => {
                self.received += n as u64;
                self.put(buf.get(..n).unwrap_or_default());
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Err(_) => {
                self.pipe = None;
                false
            }
        }
    }

    fn put(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let room = self.max_size.saturating_sub(self.size);
            if data.len() as u64 <= room {
                self.write(data);
                return;
            }
            let fits = data.get(..usize::try_from(room).unwrap_or(usize::MAX)).unwrap_or(data);
            let line_end = fits.iter().rposition(|b| *b == b'\n').map(|at| at + 1);
            let (cut, full) = match line_end {
                Some(end) => (end, true),
                // A line longer than a file is the only one that is cut.
                None if self.size == 0 => (fits.len(), true),
                None if self.at_line_start => (0, true),
                None => self.finish_line(data, room),
            };
            let (now, later) = data.split_at(cut.min(data.len()));
            self.write(now);
            if full && !self.rotate() {
                // No new file, so the rest cannot be kept.
                self.lose(later.len(), self.lost_reason.unwrap_or(Errno(28)));
                return;
            }
            data = later;
        }
    }

    /// How much of `data` still belongs to a line begun in this file, and
    /// whether the file is finished with that.
    fn finish_line(&self, data: &[u8], room: u64) -> (usize, bool) {
        let over = self.size.saturating_sub(self.max_size);
        let allowed = room + LINE_ALLOWANCE.saturating_sub(over);
        let window = data.get(..usize::try_from(allowed).unwrap_or(usize::MAX)).unwrap_or(data);
        match window.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (window.len(), (window.len() as u64) >= allowed),
        }
    }

    fn write(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            match sys::write_fd(self.file.as_raw_fd(), data) {
                Ok(n) => {
                    let (done, rest) = data.split_at(n.min(data.len()));
                    self.size += done.len() as u64;
                    self.at_line_start = done.last().map_or(self.at_line_start, |b| *b == b'\n');
                    data = rest;
                }
                Err(Errno::INTR) => {}
                Err(e) => {
                    self.lose(data.len(), e);
                    return;
                }
            }
        }
    }

    fn lose(&mut self, bytes: usize, why: Errno) {
        self.lost += bytes as u64;
        self.lost_reason.get_or_insert(why);
    }

    fn rotate(&mut self) -> bool {
        for step in 1..=MAX_NAME_TRIES {
            let next = self.index + step;
            match create(&self.dir, &self.base, next) {
                Ok(file) => {
                    self.file = file;
                    self.index = next;
                    self.size = 0;
                    self.at_line_start = true;
                    self.remove_old(step);
                    return true;
                }
                Err(Errno::EXIST) => {}
                Err(e) => {
                    self.lost_reason.get_or_insert(e);
                    return false;
                }
            }
        }
        false
    }

    fn remove_old(&self, step: u64) {
        let Some(newest_gone) = self.index.checked_sub(self.max_files) else { return };
        if step == 1 {
            // Older ones went when the file before this was begun.
            let _ = sys::unlink_at(self.dir.as_raw_fd(), &name(&self.base, newest_gone));
            return;
        }
        prune(&self.dir, &self.dir_path, &self.base, self.max_files);
    }
}

fn create(dir: &OwnedFd, base: &[u8], index: u64) -> Sys<OwnedFd> {
    let flags = sys::O_WRONLY | sys::O_APPEND | sys::O_CREAT | sys::O_EXCL | sys::O_NOFOLLOW;
    sys::open_at(dir.as_raw_fd(), &name(base, index), flags, 0o644)
}

/// Keeps the newest `max_files` and removes the others.
fn prune(dir: &OwnedFd, dir_path: &[u8], base: &[u8], max_files: u64) {
    let found = existing(dir_path, base);
    let keep = usize::try_from(max_files).unwrap_or(usize::MAX);
    for index in found.iter().rev().skip(keep) {
        let _ = sys::unlink_at(dir.as_raw_fd(), &name(base, *index));
    }
}

/// Continues the newest file, or begins the first one. The directory may be
/// the tenant's, who may have put a link or a device there: that is passed by.
fn reopen(dir: &OwnedFd, dir_path: &[u8], base: &[u8], max_files: u64) -> Sys<(OwnedFd, u64, u64, bool)> {
    let found = existing(dir_path, base);
    if found.len() as u64 > max_files {
        prune(dir, dir_path, base, max_files);
    }
    let mut next = 0;
    if let Some(newest) = found.last().copied() {
        next = newest + 1;
        let flags = sys::O_RDWR | sys::O_APPEND | sys::O_NOFOLLOW | sys::O_NONBLOCK;
        if let Ok(fd) = sys::open_at(dir.as_raw_fd(), &name(base, newest), flags, 0) {
            let file = std::fs::File::from(fd);
            let meta = file.metadata()?;
            if meta.is_file() && meta.nlink() == 1 {
                let mut last = [b'\n'];
                if meta.len() > 0 {
                    let _ = std::os::unix::fs::FileExt::read_at(&file, &mut last, meta.len() - 1);
                }
                return Ok((OwnedFd::from(file), newest, meta.len(), last == [b'\n']));
            }
        }
    }
    for index in next..next + MAX_NAME_TRIES {
        match create(dir, base, index) {
            Ok(file) => return Ok((file, index, 0, true)),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::EXIST)
}
