//! The operating system's file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FlockOperation;

use crate::disk::{Disk, DiskEntry, DiskFile, OpenMode};

/// Zeros are written in pieces of this size.
const ZERO_CHUNK: usize = 256 * 1024;

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let mut at = self.len()?;
        if at >= len {
            return Ok(());
        }
        // Asked first so that a full disk is known before half of it is written. Not every file
        // system can; writing zeros allocates all the same.
        #[cfg(target_os = "linux")]
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::KEEP_SIZE, at, len - at) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Allocated but unwritten space would still cost a metadata change at each first write.
        let zeros = vec![0; ZERO_CHUNK];
        while at < len {
            let n = usize::try_from(len - at).unwrap_or(ZERO_CHUNK).min(ZERO_CHUNK);
            let piece = zeros.get(..n).unwrap_or(&zeros);
            self.0.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// Adds the path to an error, which the operating system leaves out.
fn at<T>(path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::CreateOrOpen => options.write(true).create(true).truncate(false),
            OpenMode::CreateNew => options.write(true).create_new(true),
        };
        // What these files hold is nobody else's to read.
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Arc::new(RealFile(at(path, options.open(path))?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        at(from, std::fs::rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        at(path, std::fs::remove_file(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DiskEntry>> {
        let mut entries = Vec::new();
        for entry in at(dir, std::fs::read_dir(dir))? {
            let entry = at(dir, entry)?;
            let name = entry.file_name().into_string().map_err(|name| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}: the name {name:?} is not UTF-8", dir.display()))
            })?;
            entries.push(DiskEntry { name, is_dir: entry.file_type()?.is_dir() });
        }
        entries.sort();
        Ok(entries)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        at(dir, std::fs::create_dir_all(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        at(dir, File::open(dir).and_then(|dir| dir.sync_all()))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        at(path, path.try_exists())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = at(path, options.open(path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(file)),
            Err(error) => at(path, Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk;
        let path = dir.path().join("a/b");
        assert_eq!(disk.open(&path, OpenMode::Read).unwrap_err().kind(), io::ErrorKind::NotFound);
        disk.create_dir_all(&dir.path().join("a")).unwrap();
        let file = disk.open(&path, OpenMode::CreateNew).unwrap();
        file.preallocate(300_000).unwrap();
        assert_eq!(file.len().unwrap(), 300_000);
        file.write_all_at(b"hello", 299_998).unwrap();
        file.sync_data().unwrap();
        let mut buf = [1; 7];
        file.read_exact_at(&mut buf, 299_996).unwrap();
        assert_eq!(&buf, b"\0\0hello");
        let error = disk.open(&path, OpenMode::CreateNew).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        disk.replace(&path, b"short").unwrap();
        assert_eq!(disk.read(&path, 5).unwrap(), b"short");
        assert_eq!(disk.read(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let names: Vec<_> = disk.list(&dir.path().join("a")).unwrap();
        assert_eq!(names, [DiskEntry { name: "b".into(), is_dir: false }]);
        disk.remove(&path).unwrap();
        assert!(!disk.exists(&path).unwrap());
    }

    #[test]
    fn a_lock_is_held_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let guard = RealDisk.lock(&path).unwrap();
        let error = RealDisk.lock(&path).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(guard);
        RealDisk.lock(&path).unwrap();
    }
}
