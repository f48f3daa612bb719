//! Logs of a task: the numbered files read as one stream.

use super::channel::{Channel, Refusal};
use super::files::{blocking, wait_or_beat};
use super::frames::{FRAME_BYTES, Origin, StreamFrame};
use super::watch::DirWatch;
use crate::alloc::dir::LOGS;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// Which log, and from where.
pub struct LogSource {
    /// The allocation's directory.
    pub root: PathBuf,
    pub task: String,
    /// `stdout` or `stderr`.
    pub kind: String,
    pub origin: String,
    pub offset: i64,
    pub follow: bool,
    /// Turns true once nothing more will be written.
    pub over: watch::Receiver<bool>,
}

/// A log file: its number and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogFile {
    number: u64,
    size: u64,
}

/// The files of one log in order.
fn files(dir: &File, prefix: &str) -> io::Result<Vec<LogFile>> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        let Some(number) = name.strip_prefix(prefix).and_then(|rest| rest.parse().ok()) else { continue };
        // A file may be rotated away since the directory was read.
        if let Ok(stat) = rustix::fs::statat(dir, entry.file_name(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            found.push(LogFile { number, size: u64::try_from(stat.st_size).unwrap_or(0) });
        }
    }
    found.sort_by_key(|file| file.number);
    Ok(found)
}

/// File number and position where a stream begins.
fn begin(files: &[LogFile], origin: Origin, offset: u64) -> Option<(u64, u64)> {
    let mut left = offset;
    match origin {
        Origin::Start => {
            for file in files {
                if left < file.size {
                    return Some((file.number, left));
                }
                left -= file.size;
            }
            files.last().map(|file| (file.number, file.size))
        }
        Origin::End => {
            for file in files.iter().rev() {
                if left <= file.size {
                    return Some((file.number, file.size - left));
                }
                left -= file.size;
            }
            files.first().map(|file| (file.number, 0))
        }
    }
}

fn open_dir(root: &Path) -> io::Result<File> {
    let root = File::open(root)?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(File::from(openat2(&root, LOGS, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)?))
}

/// Reads a frame's worth; `None` when the file is not there.
fn read(dir: &File, name: &str, at: u64) -> io::Result<Option<Vec<u8>>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat2(dir, name, flags, Mode::empty(), resolve) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is not a regular file")));
    }
    let mut buffer = vec![0; FRAME_BYTES];
    let count = file.read_at(&mut buffer, at)?;
    buffer.truncate(count);
    Ok(Some(buffer))
}

/// Sends a log as frames, and what is added to it until nothing more will be.
pub async fn stream_logs(channel: &mut Channel, source: LogSource) -> Result<(), Refusal> {
    let LogSource { root, task, kind, origin, offset, follow, mut over } = source;
    let origin = Origin::parse(&origin).ok_or_else(|| Refusal::bad("origin must be start or end"))?;
    let offset = u64::try_from(offset).map_err(|_| Refusal::bad("offset must not be negative"))?;
    let prefix = format!("{task}.{kind}.");
    let dir = Arc::new(open_dir(&root)?);
    let mut watch = if follow { Some(DirWatch::new(&root.join(LOGS))?) } else { None };
    let mut place: Option<(u64, u64)> = None;
    loop {
        // Asked before the files are looked at, so that the last bytes are not missed.
        let finished = *over.borrow_and_update();
        let (handle, names) = (Arc::clone(&dir), prefix.clone());
        let found = blocking(move || files(&handle, &names)).await??;
        if place.is_none() {
            place = begin(&found, origin, offset);
        }
        if let Some((number, at)) = &mut place {
            let name = format!("{prefix}{number}");
            let (handle, file, from) = (Arc::clone(&dir), name.clone(), *at);
            let bytes = blocking(move || read(&handle, &file, from)).await??.unwrap_or_default();
            if !bytes.is_empty() {
                *at = at.saturating_add(bytes.len() as u64);
                channel.json(&StreamFrame::data(&format!("{LOGS}/{name}"), &bytes, *at)).await?;
                continue;
            }
            if let Some(next) = found.iter().find(|file| file.number > *number) {
                (*number, *at) = (next.number, 0);
                continue;
            }
        }
        let Some(watch) = &mut watch else { return Ok(()) };
        if finished {
            return Ok(());
        }
        let change = async {
            tokio::select! {
                changed = watch.changed() => changed,
                ended = over.wait_for(|over| *over) => {
                    // The sender is gone only with the allocation itself.
                    drop(ended);
                    Ok(())
                }
            }
        };
        if !wait_or_beat(channel, change).await? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_begins_where_the_offset_says_over_all_files() {
        let files = [LogFile { number: 3, size: 10 }, LogFile { number: 4, size: 5 }];
        for (origin, offset, expected) in [
            (Origin::Start, 0, (3, 0)),
            (Origin::Start, 9, (3, 9)),
            (Origin::Start, 10, (4, 0)),
            (Origin::Start, 99, (4, 5)),
            (Origin::End, 0, (4, 5)),
            (Origin::End, 5, (4, 0)),
            (Origin::End, 6, (3, 9)),
            (Origin::End, 99, (3, 0)),
        ] {
            assert_eq!(begin(&files, origin, offset), Some(expected), "{origin:?} {offset}");
        }
        assert_eq!(begin(&[], Origin::Start, 0), None);
    }
}
