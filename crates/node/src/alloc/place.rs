//! Where files of artifacts and templates may lie: below the task's own directory or the allocation's shared one.
//!
//! A text becomes a [`Spot`]; every step to it goes through directory handles that refuse links, and what is written
//! appears under its name at once and whole.

use super::dir::{AllocDir, SHARED, open_root, open_within, subdir};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchmod, fchown, fstat, openat2, renameat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Permissions of directories made on the way.
const DIR_MODE: u32 = 0o755;
/// Levels that a path may have.
const MAX_LEVELS: usize = 256;
/// Files that are given another owner at once.
const MAX_HANDED: usize = 1_000_000;
/// Names tried for a new file.
const NAME_TRIES: usize = 64;

static NAMES: AtomicU64 = AtomicU64::new(0);

/// A place below one of the two directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// The task's directory, or the shared one.
    base: PathBuf,
    /// Names below it.
    rest: Vec<String>,
}

/// What a text means: relative to the task's directory, or a host path below the allocation's.
///
/// # Errors
/// It leads elsewhere.
pub fn locate(dir: &AllocDir, task: &str, text: &str) -> Result<Spot, String> {
    let path = Path::new(text);
    let below = path.strip_prefix(&dir.root).ok();
    let mut names: Vec<String> = if below.is_some() { Vec::new() } else { vec![task.to_string()] };
    for component in below.unwrap_or(path).components() {
        match component {
            Component::Normal(name) => names.push(name.to_str().ok_or_else(|| outside(text, task))?.to_string()),
            Component::ParentDir => drop(names.pop().ok_or_else(|| outside(text, task))?),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
        if names.len() > MAX_LEVELS {
            return Err(format!("path {text:?} has more than {MAX_LEVELS} levels"));
        }
    }
    let mut names = names.into_iter();
    match names.next() {
        Some(first) if first == task || first == SHARED => {
            Ok(Spot { base: dir.root.join(first), rest: names.collect() })
        }
        _ => Err(outside(text, task)),
    }
}

fn outside(text: &str, task: &str) -> String {
    format!(
        "path {text:?} escapes the directories of task {task:?}: name a file below its own directory or NOMAD_ALLOC_DIR"
    )
}

impl Spot {
    /// The path, for messages.
    pub fn path(&self) -> PathBuf {
        self.base.join(self.rest.join("/"))
    }

    /// A place below.
    pub fn join(mut self, name: &str) -> Spot {
        self.rest.push(name.to_string());
        self
    }

    /// Reads a file that has at most `limit` bytes. Links are followed within the base.
    pub fn read(&self, limit: usize) -> io::Result<Vec<u8>> {
        // Without blocking: a pipe in its place must not hold the agent up.
        let fd = open_within(&self.base, &self.rest.join("/"), OFlags::RDONLY | OFlags::NONBLOCK)?;
        let file = File::from(fd);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let mut data = Vec::new();
        file.take(u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1)).read_to_end(&mut data)?;
        if data.len() > limit {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit} bytes")));
        }
        Ok(data)
    }

    /// The directory itself, made where it is missing.
    pub fn folder(&self) -> io::Result<Folder> {
        self.rest.iter().try_fold(Folder(open_root(&self.base)?), |folder, name| folder.sub(name))
    }

    /// The directory it lies in, made where it is missing, and its name there.
    pub fn parent(&self) -> io::Result<(Folder, String)> {
        let Some((name, before)) = self.rest.split_last() else {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory; name a file in it"));
        };
        let base = Folder(open_root(&self.base)?);
        Ok((before.iter().try_fold(base, |folder, name| folder.sub(name))?, name.clone()))
    }

    /// Gives what is there, and all below, another owner.
    pub fn hand_over(&self, owner: Owner) -> io::Result<()> {
        let mut left = MAX_HANDED;
        if self.rest.is_empty() {
            return hand_over(&open_root(&self.base)?, c".", owner, 0, &mut left);
        }
        let (folder, name) = self.parent()?;
        hand_over(&folder.0, &CString::new(name).map_err(io::Error::other)?, owner, 0, &mut left)
    }

    /// Writes a file at once and whole.
    pub fn write(&self, data: &[u8], mode: u32, owner: Owner) -> io::Result<()> {
        let (folder, name) = self.parent()?;
        let mut fresh = folder.fresh()?;
        fresh.file.write_all(data)?;
        fresh.keep(&folder, &name, mode, owner)
    }
}

/// Gives an entry of a directory, and all below, another owner. Links are changed themselves; a file with a second name is
/// left alone, for that may lie anywhere.
fn hand_over(folder: &OwnedFd, name: &CStr, (uid, gid): Owner, level: usize, left: &mut usize) -> io::Result<()> {
    let too_many = || io::Error::new(io::ErrorKind::InvalidInput, "too many files or levels");
    *left = left.checked_sub(1).filter(|_| level < MAX_LEVELS).ok_or_else(too_many)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    let entry = match openat2(folder, name, flags, Mode::empty(), resolve) {
        // `secrets` is a mount of its own, and the task's anyway.
        Err(Errno::XDEV) => return Ok(()),
        entry => entry?,
    };
    let stat = fstat(&entry)?;
    let directory = FileType::from_raw_mode(stat.st_mode).is_dir();
    if directory || stat.st_nlink == 1 {
        chownat(&entry, "", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH)?;
    }
    if directory {
        let inside = openat2(&entry, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)?;
        for below in Dir::read_from(&inside)? {
            let below = below?;
            if !matches!(below.file_name().to_bytes(), b"." | b"..") {
                hand_over(&inside, below.file_name(), (uid, gid), level.saturating_add(1), left)?;
            }
        }
    }
    Ok(())
}

/// User and group of a file; none: the agent's own.
pub type Owner = (Option<u32>, Option<u32>);

/// An open directory.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// The root of an allocation.
    pub fn root(dir: &AllocDir) -> io::Result<Folder> {
        Ok(Folder(open_root(&dir.root)?))
    }

    /// A directory in it, made where it is missing; a link is refused.
    pub fn sub(&self, name: &str) -> io::Result<Folder> {
        check_name(name)?;
        Ok(Folder(subdir(&self.0, name, DIR_MODE)?))
    }

    /// A new file under a name of its own that goes away unless it is kept.
    pub fn fresh(&self) -> io::Result<Fresh> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        for _ in 0..NAME_TRIES {
            let name = format!(".fetch-{}-{}", std::process::id(), NAMES.fetch_add(1, Ordering::Relaxed));
            match openat2(&self.0, name.as_str(), flags, Mode::from_raw_mode(0o600), resolve) {
                Ok(fd) => return Ok(Fresh { file: File::from(fd), folder: self.0.try_clone()?, name }),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "no name is free for a new file"))
    }

    /// Makes a link, in the place of whatever file was there.
    pub fn link(&self, name: &str, target: &OsStr) -> io::Result<()> {
        check_name(name)?;
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(symlinkat(target, &self.0, name)?)
    }
}

/// A name is one step, never two, and never up.
fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no file name")));
    }
    Ok(())
}

/// A file that is being written.
#[derive(Debug)]
pub struct Fresh {
    pub file: File,
    folder: OwnedFd,
    name: String,
}

impl Fresh {
    /// Gives it its name. Only permission bits count, so nothing runs as somebody else.
    pub fn keep(self, folder: &Folder, name: &str, mode: u32, (uid, gid): Owner) -> io::Result<()> {
        check_name(name)?;
        if uid.is_some() || gid.is_some() {
            fchown(&self.file, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
        }
        fchmod(&self.file, Mode::from_raw_mode(mode & 0o777))?;
        Ok(renameat(&self.folder, self.name.as_str(), &folder.0, name)?)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // Not there any more once it is kept.
        let _ = unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use herdsman_model::AllocId;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn built() -> (tempfile::TempDir, AllocDir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(temp.path(), AllocId([7; 16]));
        dir.build().unwrap();
        dir.build_task("web", 0).unwrap();
        dir.build_task("other", 0).unwrap();
        (temp, dir)
    }

    #[test]
    fn texts_lead_to_the_two_directories_only() {
        let (_temp, dir) = built();
        let root = dir.root.to_str().unwrap();
        for (text, wanted) in [
            ("local/x", "web/local/x"),
            ("/local/x", "web/local/x"),
            ("./local//a/../b", "web/local/b"),
            ("../alloc/data/x", "alloc/data/x"),
            (&format!("{root}/web/secrets/k"), "web/secrets/k"),
            (&format!("{root}/alloc/x"), "alloc/x"),
        ] {
            assert_eq!(locate(&dir, "web", text).unwrap().path(), dir.root.join(wanted), "{text}");
        }
        for text in [
            "..",
            "../other/local/x",
            "../../x",
            "local/../../other/x",
            &format!("{root}/other/x"),
            &format!("{root}/x"),
        ] {
            assert!(locate(&dir, "web", text).is_err(), "{text}");
        }
    }

    #[test]
    fn owners_change_below_and_nowhere_else() {
        use std::os::unix::fs::MetadataExt;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (temp, dir) = built();
        let outside = temp.path().join("outside");
        std::fs::write(&outside, "x").unwrap();
        let local = dir.root.join("web/local");
        std::fs::create_dir(local.join("d")).unwrap();
        std::fs::write(local.join("d/f"), "x").unwrap();
        symlink(&outside, local.join("d/link")).unwrap();
        std::fs::hard_link(&outside, local.join("d/hard")).unwrap();
        std::fs::write(local.join("other"), "x").unwrap();
        locate(&dir, "web", "local/d").unwrap().hand_over((Some(4321), Some(4322))).unwrap();
        let owner = |path: &Path| std::fs::symlink_metadata(path).map(|m| (m.uid(), m.gid())).unwrap();
        for path in ["d", "d/f", "d/link"] {
            assert_eq!(owner(&local.join(path)), (4321, 4322), "{path}");
        }
        assert_eq!((owner(&outside).0, owner(&local.join("other")).0), (0, 0));
    }

    #[test]
    fn links_are_not_written_through() {
        let (temp, dir) = built();
        let outside = temp.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, dir.root.join("web/local/out")).unwrap();
        symlink(outside.join("f"), dir.root.join("web/local/file")).unwrap();
        assert!(locate(&dir, "web", "local/out/x").unwrap().write(b"x", 0o644, (None, None)).is_err());
        // A link in the place of the file is replaced.
        locate(&dir, "web", "local/file").unwrap().write(b"x", 0o4755, (None, None)).unwrap();
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        let meta = std::fs::symlink_metadata(dir.root.join("web/local/file")).unwrap();
        assert!(meta.is_file());
        assert_eq!(meta.permissions().mode() & 0o7777, 0o755);
        assert!(locate(&dir, "web", "local/out").unwrap().read(10).is_err());
        assert_eq!(locate(&dir, "web", "local/file").unwrap().read(10).unwrap(), b"x");
        assert!(locate(&dir, "web", "local/file").unwrap().read(0).is_err());
    }
}
