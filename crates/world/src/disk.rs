//! Files, as far as logs, snapshots and stores need them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How [`Disk::open`] treats a file that is or is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read only; must exist.
    Read,
    /// Read and write; must exist.
    Write,
    /// Read and write; made empty when missing, kept when there.
    CreateOrOpen,
    /// Read and write; made, an error of kind `AlreadyExists` when there.
    CreateNew,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskEntry {
    /// The name, without the directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// An open file. Calls block; methods take `&self` and may be used from several threads.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;
    /// Reads up to `buf.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `data` at `offset`, growing the file where needed. Not durable until synced;
    /// on an error any part may have been written.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the content and the length durable (`fdatasync`). After an error the content since the
    /// last success is unknown: a later success says nothing about it.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts or grows (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Grows to at least `len` bytes with the space allocated and written with zeros, so that later
    /// writes within it neither run out of space nor change metadata.
    fn preallocate(&self, len: u64) -> io::Result<()>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset`, or fails with `UnexpectedEof`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let n = self.read_at(rest, offset.saturating_add(done as u64))?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += n;
        }
        Ok(())
    }
}

/// A file system. Calls block. Paths are absolute or relative to the process; the simulated one
/// takes them as plain names.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames, replacing `to`. Durable after [`Disk::sync_dir`] of the directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after [`Disk::sync_dir`] of the directory.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// What is in a directory, sorted by name.
    fn list(&self, dir: &Path) -> io::Result<Vec<DiskEntry>>;
    /// Makes a directory and those above it; no error when there.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Whether something has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Takes an exclusive lock on `path` (made when missing) that ends with the guard or the
    /// process. An error of kind `WouldBlock` says another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;

    /// Whether calls return at once, so that they may run on an async task. When false, a caller in
    /// async code goes through [`run`].
    fn is_instant(&self) -> bool {
        false
    }

    /// The whole of a file of at most `limit` bytes; a larger one is an error of kind
    /// `FileTooLarge`.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.open(path, OpenMode::Read)?;
        let len = file.len()?;
        if len > limit {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{} has {len} bytes, more than the {limit} allowed", path.display()),
            ));
        }
        let mut data = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_exact_at(&mut data, 0)?;
        Ok(data)
    }

    /// Puts `data` at `path` so that after a crash there is either the old file or all of the new
    /// one: written beside, synced, renamed, directory synced.
    fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let file = self.open(&beside, OpenMode::CreateOrOpen)?;
        file.set_len(0)?;
        file.write_all_at(data, 0)?;
        file.sync_data()?;
        self.rename(&beside, path)?;
        match path.parent() {
            Some(dir) => self.sync_dir(dir),
            None => Ok(()),
        }
    }
}

/// Runs `work`, which blocks on `disk`, from async code: in place when the disk is instant, else on
/// tokio's blocking threads. Once it has begun it runs to its end, also when the future is dropped.
///
/// Fails with `Other` when `work` panicked or the runtime is shutting down.
pub async fn run<T, F>(disk: &dyn Disk, work: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    if disk.is_instant() {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(format!("disk work did not finish: {error}"))),
    }
}

/// Tells the host's file system that what will be in the directories made below this one from now on has nothing to do with
/// each other, so that ext4 spreads them over the disk. Side by side, each new file has to look past the remains of those
/// that went within the last minutes. Only where things lie depends on it: a file system without the flag is left as it is.
pub fn spread(dir: &Path) {
    if let Ok(dir) = std::fs::File::open(dir)
        && let Ok(flags) = rustix::fs::ioctl_getflags(&dir)
        && !flags.contains(rustix::fs::IFlags::TOPDIR)
    {
        let _ = rustix::fs::ioctl_setflags(&dir, flags | rustix::fs::IFlags::TOPDIR);
    }
}
