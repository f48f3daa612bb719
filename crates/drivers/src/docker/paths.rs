//! Which host paths a task may mount.
//!
//! Without `volumes.enabled` a task may mount what lies in its allocation only.
//! The engine follows links when it mounts, and whoever can write to the
//! allocation may put one there at any moment. So such a source is opened
//! without following links, and what was opened is mounted at a place only root
//! can reach; that place is what the engine is given.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::types::TaskDirs;

/// Names in a path.
const MAX_DEPTH: usize = 256;

/// A source of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the allocation; the path from its directory.
    Confined(PathBuf),
    /// Anywhere on the host, which the operator allowed.
    Host(PathBuf),
}

/// Decides about a source as a job file gives it; relative to the task's
/// directory.
pub(crate) fn source(text: &str, dirs: &TaskDirs, volumes_enabled: bool) -> Result<Source, String> {
    let path = plain(&dirs.task_dir.join(text));
    if volumes_enabled {
        return Ok(Source::Host(path));
    }
    match path.strip_prefix(plain(&dirs.alloc_dir)) {
        Ok(inside) if !dirs.alloc_dir.as_os_str().is_empty() => Ok(Source::Confined(inside.to_owned())),
        _ => Err(format!("volumes are not enabled; cannot mount host paths: {text:?}")),
    }
}

/// The path without `.` and `..`, by its text.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

fn open_dir(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// Opens a path in `root` without following a link anywhere.
fn open_beneath(root: &OwnedFd, inside: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, inside, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// A file in one of the task's own directories, for reading.
pub(crate) fn open_file(dirs: &TaskDirs, name: &str) -> Result<File, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot open {name:?} in the task's directory: {why}");
    let mut last = Errno::NOENT;
    for dir in [&dirs.local, &dirs.task_dir] {
        let root = open_dir(dir).map_err(|e| failed(&e))?;
        match open_beneath(&root, Path::new(name), OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(fd) => {
                let file = File::from(fd);
                if !file.metadata().is_ok_and(|m| m.is_file()) {
                    return Err(failed(&"not a file"));
                }
                return Ok(file);
            }
            Err(Errno::NOENT) => {}
            Err(e) => last = e,
        }
    }
    Err(failed(&explain(last)))
}

fn explain(error: Errno) -> String {
    match error {
        Errno::LOOP | Errno::XDEV => "a link or .. leads out of it".to_owned(),
        other => other.to_string(),
    }
}

/// Opens a source in the allocation; directories that are missing are made.
fn open_source(alloc_dir: &Path, inside: &Path) -> Result<OwnedFd, String> {
    let failed =
        |e: Errno| format!("cannot mount {:?} of the allocation: {}", inside.display().to_string(), explain(e));
    let root = open_dir(alloc_dir).map_err(failed)?;
    match open_beneath(&root, inside, OFlags::PATH) {
        Ok(fd) => return Ok(fd),
        Err(Errno::NOENT) => {}
        Err(e) => return Err(failed(e)),
    }
    let mut made = PathBuf::new();
    let mut parent = root.try_clone().map_err(|e| failed(Errno::from_io_error(&e).unwrap_or(Errno::MFILE)))?;
    for part in inside.components().take(MAX_DEPTH) {
        match rustix::fs::mkdirat(&parent, part.as_os_str(), Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(failed(e)),
        }
        made.push(part);
        parent = open_beneath(&root, &made, OFlags::PATH).map_err(failed)?;
    }
    Ok(parent)
}

/// Mounts of sources at places only root can reach; gone when dropped.
#[derive(Debug)]
pub(crate) struct Pins {
    dir: PathBuf,
    places: Vec<PathBuf>,
}

impl Pins {
    /// Places below `dir`, which is the start's own.
    pub fn new(dir: PathBuf) -> Pins {
        Pins { dir, places: Vec::new() }
    }

    /// Mounts a source of the allocation and returns where.
    pub fn pin(&mut self, alloc_dir: &Path, inside: &Path) -> Result<PathBuf, String> {
        let source = open_source(alloc_dir, inside)?;
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            format!("cannot mount {:?} of the allocation safely: {what}: {why}", inside.display().to_string())
        };
        let place = self.dir.join(self.places.len().to_string());
        let stat = rustix::fs::fstat(&source).map_err(|e| failed("look", &e))?;
        std::fs::create_dir_all(&self.dir).map_err(|e| failed("make a place", &e))?;
        let made = if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory {
            std::fs::create_dir(&place)
        } else {
            File::create_new(&place).map(drop)
        };
        made.map_err(|e| failed("make a place", &e))?;
        self.places.push(place.clone());
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(&source, "", flags).map_err(|e| failed("open_tree", &e))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&tree, "", CWD, &place, flags).map_err(|e| failed("move_mount", &e))?;
        Ok(place)
    }

    /// Whether a task that sees its sources at these paths sees the pinned ones.
    pub fn seen(&self, process_root: &Path, targets: &[(PathBuf, String)]) -> Result<(), String> {
        for (place, target) in targets.iter().filter(|(place, _)| self.places.contains(place)) {
            let Ok(here) = rustix::fs::statat(CWD, place, AtFlags::empty()) else { continue };
            // A task that has ended already shows nothing.
            let there = process_root.join(target.trim_start_matches('/'));
            let Ok(there) = rustix::fs::statat(CWD, &there, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) {
                return Err(format!(
                    "the container engine does not see mounts of this agent, so {target:?} cannot be mounted safely; \
                     run both in one mount namespace, or set volumes.enabled"
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        clear(&self.dir);
    }
}

/// Takes away everything pinned below a directory.
pub(crate) fn clear(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let place = entry.path();
        // What is not mounted stays an empty file or directory.
        while rustix::mount::unmount(&place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
        // Only what is empty is removed: never the content of a mount.
        let _ = std::fs::remove_dir(&place).or_else(|_| match std::fs::metadata(&place) {
            Ok(meta) if meta.is_file() && meta.len() == 0 => std::fs::remove_file(&place),
            _ => Ok(()),
        });
    }
    let _ = std::fs::remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn dirs(root: &Path) -> TaskDirs {
        let task_dir = root.join("a/t");
        std::fs::create_dir_all(task_dir.join("local")).unwrap();
        TaskDirs {
            alloc_dir: root.join("a"),
            shared: root.join("a/alloc"),
            local: task_dir.join("local"),
            secrets: task_dir.join("secrets"),
            logs: root.join("a/alloc/logs"),
            task_dir,
        }
    }

    #[test]
    fn only_the_allocation_without_permission() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        let inside = |text: &str| source(text, &dirs, false);
        assert_eq!(inside("local/x"), Ok(Source::Confined("t/local/x".into())));
        assert_eq!(inside("../alloc/data"), Ok(Source::Confined("alloc/data".into())));
        let absolute = dirs.local.join("x");
        assert_eq!(inside(absolute.to_str().unwrap()), Ok(Source::Confined("t/local/x".into())));
        for text in ["/etc", "../../x", "local/../../../etc", "/"] {
            assert!(inside(text).is_err_and(|e| e.contains("volumes are not enabled")), "{text}");
            assert!(matches!(source(text, &dirs, true), Ok(Source::Host(_))));
        }
    }

    #[test]
    fn links_lead_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        symlink("/etc", dirs.local.join("out")).unwrap();
        symlink("/etc/passwd", dirs.local.join("file")).unwrap();
        for inside in ["t/local/out", "t/local/out/ssl", "t/local/file"] {
            let error = open_source(&dirs.alloc_dir, Path::new(inside)).unwrap_err();
            assert!(error.contains("leads out"), "{inside}: {error}");
        }
        assert!(open_file(&dirs, "out/passwd").unwrap_err().contains("leads out"));
        assert!(open_file(&dirs, "../../../etc/passwd").is_err());
        std::fs::write(dirs.local.join("image.tar"), "x").unwrap();
        open_file(&dirs, "image.tar").unwrap();
        open_source(&dirs.alloc_dir, Path::new("t/new/dir")).unwrap();
        assert!(dirs.task_dir.join("new/dir").is_dir());
    }
}
