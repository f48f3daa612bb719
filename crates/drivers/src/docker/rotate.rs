//! Numbered log files `<base>.<N>`, the newest with the highest number.
//!
//! A file is finished at a line's end when the next line would make it larger
//! than allowed. The directory may be the tenant's: links and special files in
//! it are passed by.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

/// How far a file may grow above its limit to finish a line.
const LINE_ALLOWANCE: u64 = 32 << 10;
/// Names tried when somebody has put something in the way of the next file.
const MAX_NAME_TRIES: u64 = 16;
/// File numbers above this are not ours.
const MAX_INDEX: u64 = 1 << 53;
/// Log directory entries looked at for older files.
const MAX_DIR_ENTRIES: usize = 100_000;

/// The newest file of a stream.
#[derive(Debug)]
pub(crate) struct Rotator {
    dir: OwnedFd,
    dir_path: PathBuf,
    base: String,
    file: File,
    index: u64,
    size: u64,
    at_line_start: bool,
    max_size: u64,
    max_files: u64,
}

impl Rotator {
    /// Goes on with the newest file of `base`, or begins the first.
    pub fn open(dir_path: &Path, base: &str, max_files: u64, max_size: u64) -> io::Result<Rotator> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, dir_path, flags, Mode::empty())?;
        let newest = files(dir_path, base).last().map(|(index, _)| *index);
        let (file, index) = match newest.map(|n| (open_old(&dir, base, n), n)) {
            Some((Some(file), index)) => (file, index),
            Some((None, index)) => create_next(&dir, base, index + 1)?,
            None => create_next(&dir, base, 0)?,
        };
        let size = file.metadata()?.len();
        let mut last = [b'\n'];
        if size > 0 {
            file.read_exact_at(&mut last, size - 1)?;
        }
        Ok(Rotator {
            dir,
            dir_path: dir_path.to_owned(),
            base: base.to_owned(),
            file,
            index,
            size,
            at_line_start: last == [b'\n'],
            max_size: max_size.max(1),
            max_files: max_files.max(1),
        })
    }

    /// Number and size of the newest file.
    pub fn at(&self) -> (u64, u64) {
        (self.index, self.size)
    }

    /// Bytes in the files after this place.
    pub fn bytes_after(&self, index: u64, size: u64) -> u64 {
        let after = files(&self.dir_path, &self.base).into_iter().filter(|(i, _)| *i >= index);
        after.map(|(i, len)| if i == index { len.saturating_sub(size) } else { len }).sum()
    }

    /// How much of `data` goes into this file, and whether it is finished then.
    pub fn fit(&self, data: &[u8]) -> (usize, bool) {
        let room = self.max_size.saturating_sub(self.size);
        if data.len() as u64 <= room {
            return (data.len(), false);
        }
        let fits = data.get(..usize::try_from(room).unwrap_or(usize::MAX)).unwrap_or(data);
        match fits.iter().rposition(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            // A line longer than a file is the only one that is cut.
            None if self.size == 0 => (fits.len(), true),
            None if self.at_line_start => (0, true),
            None => self.finish_line(data, room),
        }
    }

    /// How much of `data` still belongs to a line begun in this file.
    fn finish_line(&self, data: &[u8], room: u64) -> (usize, bool) {
        let over = self.size.saturating_sub(self.max_size);
        let allowed = room + LINE_ALLOWANCE.saturating_sub(over);
        let window = data.get(..usize::try_from(allowed).unwrap_or(usize::MAX)).unwrap_or(data);
        match window.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (window.len(), (window.len() as u64) >= allowed),
        }
    }

    /// Writes into the newest file; says how much was written in any case.
    pub fn write(&mut self, mut data: &[u8]) -> (usize, io::Result<()>) {
        let mut done = 0;
        while !data.is_empty() {
            match self.file.write(data) {
                Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    let (now, rest) = data.split_at(n.min(data.len()));
                    self.size += now.len() as u64;
                    self.at_line_start = now.last().map_or(self.at_line_start, |b| *b == b'\n');
                    done += now.len();
                    data = rest;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return (done, Err(e)),
            }
        }
        (done, Ok(()))
    }

    /// Begins the next file. Older ones stay until [`Rotator::prune`].
    pub fn next(&mut self) -> io::Result<()> {
        (self.file, self.index) = create_next(&self.dir, &self.base, self.index + 1)?;
        self.size = 0;
        self.at_line_start = true;
        Ok(())
    }

    /// Removes all but the newest files.
    pub fn prune(&self) {
        let found = files(&self.dir_path, &self.base);
        let keep = usize::try_from(self.max_files).unwrap_or(usize::MAX);
        for (index, _) in found.iter().rev().skip(keep) {
            let _ = rustix::fs::unlinkat(&self.dir, format!("{}.{index}", self.base), AtFlags::empty());
        }
    }
}

/// Numbers and sizes of the files `<base>.<N>`, by number.
fn files(dir: &Path, base: &str) -> Vec<(u64, u64)> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut out: Vec<(u64, u64)> = entries
        .take(MAX_DIR_ENTRIES)
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix(base)?.strip_prefix('.')?;
            let number = number.parse().ok().filter(|n| *n < MAX_INDEX)?;
            let meta = entry.metadata().ok()?; // Does not follow links.
            Some((number, if meta.is_file() { meta.len() } else { 0 }))
        })
        .collect();
    out.sort_unstable();
    out
}

fn open_old(dir: &OwnedFd, base: &str, index: u64) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, format!("{base}.{index}"), flags, Mode::empty()).ok()?;
    let file = File::from(fd);
    file.metadata().is_ok_and(|m| m.is_file() && m.nlink() == 1).then_some(file)
}

fn create_next(dir: &OwnedFd, base: &str, first: u64) -> io::Result<(File, u64)> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for index in first..first.saturating_add(MAX_NAME_TRIES) {
        match rustix::fs::openat(dir, format!("{base}.{index}"), flags, Mode::from_raw_mode(0o644)) {
            Ok(fd) => return Ok((File::from(fd), index)),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(rotator: &mut Rotator, mut data: &[u8]) {
        while !data.is_empty() {
            let (cut, full) = rotator.fit(data);
            let (now, later) = data.split_at(cut);
            rotator.write(now).1.unwrap();
            data = later;
            if full {
                rotator.next().unwrap();
                rotator.prune();
            }
        }
    }

    fn read(dir: &Path) -> Vec<(String, String)> {
        let mut out: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .flatten()
            .map(|e| (e.file_name().into_string().unwrap(), std::fs::read_to_string(e.path()).unwrap()))
            .collect();
        out.sort();
        out
    }

    #[test]
    fn files_end_with_lines_and_old_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut rotator = Rotator::open(dir.path(), "t.stdout", 2, 10).unwrap();
        put(&mut rotator, b"12345\n1234567\n12");
        put(&mut rotator, b"34\nabcdefgh\n");
        let got = read(dir.path());
        assert_eq!(
            got,
            [
                ("t.stdout.1".to_owned(), "1234567\n1234\n".to_owned()),
                ("t.stdout.2".to_owned(), "abcdefgh\n".to_owned())
            ]
        );
    }

    #[test]
    fn goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        put(&mut Rotator::open(dir.path(), "t", 9, 10).unwrap(), b"abc");
        let mut again = Rotator::open(dir.path(), "t", 9, 10).unwrap();
        assert_eq!(again.at(), (0, 3));
        put(&mut again, b"def\nxyz01234\n");
        assert_eq!(again.bytes_after(0, 5), 2 + 9);
        assert_eq!(read(dir.path()).iter().map(|(_, t)| t.as_str()).collect::<String>(), "abcdef\nxyz01234\n");
    }

    #[test]
    fn links_are_passed_by() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, dir.path().join("t.0")).unwrap();
        put(&mut Rotator::open(dir.path(), "t", 9, 10).unwrap(), b"abc");
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "");
        assert_eq!(std::fs::read_to_string(dir.path().join("t.1")).unwrap(), "abc");
    }
}
