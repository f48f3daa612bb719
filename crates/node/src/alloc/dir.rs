//! The directories of an allocation.
//!
//! ```text
//! <alloc_dir>/<allocation id>/
//!   alloc/{data,logs,tmp}          shared by its tasks
//!   <task>/{local,secrets,private,tmp}
//! ```
//!
//! Every step goes through directory handles that refuse symbolic links, so that a task which swaps one of its
//! directories for a link makes its own next start fail and nothing else. `secrets` is in memory where the agent may mount.

use herdsman_model::AllocId;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, fchmod, mkdirat, openat2};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Directory shared by the tasks of an allocation.
pub const SHARED: &str = "alloc";
/// Where task logs are.
pub const LOGS: &str = "alloc/logs";
/// Directories of a task that the file API does not read.
pub const HIDDEN: [&str; 2] = ["secrets", "private"];
/// Size of `secrets` unless the task asks for another, megabytes.
const SECRETS_MB: i64 = 1;
/// `statfs` type of a tmpfs.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The paths of one allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocDir {
    pub root: PathBuf,
}

impl AllocDir {
    /// The paths of an allocation below the node's allocation directory.
    pub fn new(alloc_dir: &Path, id: AllocId) -> AllocDir {
        AllocDir { root: alloc_dir.join(id.to_string()) }
    }

    pub fn shared(&self) -> PathBuf {
        self.root.join(SHARED)
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join(LOGS)
    }

    pub fn task(&self, task: &str) -> PathBuf {
        self.root.join(task)
    }

    pub fn exists(&self) -> bool {
        self.root.is_dir()
    }

    /// Makes what all tasks share. May be called again.
    pub fn build(&self) -> io::Result<()> {
        match rustix::fs::mkdir(&self.root, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => {
                std::fs::create_dir_all(&self.root)?;
            }
            Err(error) => return Err(error.into()),
        }
        let root = open_root(&self.root)?;
        let shared = subdir(&root, SHARED, 0o777)?;
        for name in ["data", "logs", "tmp"] {
            subdir(&shared, name, 0o777)?;
        }
        Ok(())
    }

    /// Makes what one task has for itself. May be called again; `secrets` is mounted again where it no longer is.
    pub fn build_task(&self, task: &str, secrets_mb: i64) -> io::Result<()> {
        check_name(task)?;
        let root = open_root(&self.root)?;
        let dir = subdir(&root, task, 0o777)?;
        subdir(&dir, "local", 0o777)?;
        subdir(&dir, "private", 0o777)?;
        subdir(&dir, "tmp", 0o1777)?;
        let secrets = subdir(&dir, "secrets", 0o777)?;
        if rustix::process::geteuid().is_root() {
            mount_secrets(&secrets, if secrets_mb > 0 { secrets_mb } else { SECRETS_MB })?;
        }
        Ok(())
    }

    /// Takes the tasks' secrets out of memory. What is not mounted, or not there, is no error.
    pub fn forget_secrets<'a>(&self, tasks: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
        for task in tasks {
            match unmount(self.task(task).join("secrets"), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                // An agent without the right to mount has mounted nothing.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes everything. What is not there is no error.
    pub fn destroy<'a>(&self, tasks: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
        self.forget_secrets(tasks)?;
        match std::fs::remove_dir_all(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// A task's name becomes a directory beside `alloc`.
fn check_name(task: &str) -> io::Result<()> {
    let bad = task.is_empty() || task == SHARED || task.starts_with('.') || task.contains(['/', '\0']);
    if bad {
        let text = format!("task name {task:?} cannot be a directory of its own; use letters, digits, - and _");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

pub(super) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?)
}

/// Makes a directory with exactly these permissions, or takes the one that is there; a link is refused.
pub(super) fn subdir(parent: &OwnedFd, name: &str, mode: u32) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(mode);
    let made = match mkdirat(parent, name, mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let dir = openat2(parent, name, flags, Mode::empty(), resolve).map_err(|error| {
        io::Error::new(io::Error::from(error).kind(), format!("{name} is not a directory of ours: {error}"))
    })?;
    if made {
        fchmod(&dir, mode)?;
    }
    Ok(dir)
}

/// Mounts a tmpfs over an open directory unless it is one already.
fn mount_secrets(dir: &OwnedFd, size_mb: i64) -> io::Result<()> {
    if rustix::fs::fstatfs(dir)?.f_type as i64 == TMPFS_MAGIC && is_mount(dir)? {
        return Ok(());
    }
    // The handle, not the path, says where: nobody can swap it in between.
    let target = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir.as_fd()));
    let flags = MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
    let data = CString::new(format!("size={size_mb}m,mode=0777")).map_err(io::Error::other)?;
    match mount("tmpfs", target.as_str(), "tmpfs", flags, Some(data.as_c_str())) {
        // In a container without the right to mount, secrets stay in a plain directory, as for an agent that is not root.
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(io::Error::new(io::Error::from(error).kind(), format!("mount secrets: {error}"))),
    }
}

/// Whether a directory is the root of a mount: its parent is on another device.
fn is_mount(dir: &OwnedFd) -> io::Result<bool> {
    let own = rustix::fs::fstat(dir)?;
    let parent = rustix::fs::statat(dir, "..", AtFlags::empty())?;
    Ok(own.st_dev != parent.st_dev)
}

/// Opens `path` within the allocation: links are followed, but nothing leads out of `root`.
pub fn open_within(root: &Path, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let root = rustix::fs::openat(CWD, root, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH, Mode::empty())?;
    let relative = path.trim_start_matches('/');
    let relative = if relative.is_empty() { "." } else { relative };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(&root, relative, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Writes a file below a task's directory, making the directories between; links are refused.
pub fn write_within(root: &Path, path: &str, data: &[u8], mode: u32) -> io::Result<()> {
    let mut dir = open_root(root)?;
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let name = parts.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "empty file name"))?;
    if name == ".." || parts.contains(&"..") {
        let text = format!("{path} leads out of the task's directory");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    for part in parts {
        dir = subdir(&dir, part, 0o777)?;
    }
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = openat2(&dir, name, flags, Mode::from_raw_mode(mode), resolve)?;
    fchmod(&file, Mode::from_raw_mode(mode))?;
    io::Write::write_all(&mut std::fs::File::from(file), data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn dir() -> (tempfile::TempDir, AllocDir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(temp.path(), AllocId([7; 16]));
        (temp, dir)
    }

    #[test]
    fn the_layout_is_the_peers_whatever_the_umask() {
        let (_temp, dir) = dir();
        for _ in 0..2 {
            dir.build().unwrap();
            dir.build_task("web", 0).unwrap();
        }
        for (path, mode) in [
            ("", 0o755),
            ("alloc", 0o777),
            ("alloc/data", 0o777),
            ("alloc/logs", 0o777),
            ("alloc/tmp", 0o777),
            ("web", 0o777),
            ("web/local", 0o777),
            ("web/secrets", 0o777),
            ("web/private", 0o777),
            ("web/tmp", 0o1777),
        ] {
            let found = std::fs::metadata(dir.root.join(path)).unwrap().permissions().mode();
            assert_eq!(found & 0o7777, mode, "{path}");
        }
        dir.destroy(["web"]).unwrap();
        assert!(!dir.exists());
        dir.destroy(["web"]).unwrap();
    }

    #[test]
    fn a_swapped_directory_is_refused() {
        let (temp, dir) = dir();
        dir.build().unwrap();
        dir.build_task("web", 0).unwrap();
        std::fs::remove_dir(dir.root.join("web/local")).unwrap();
        symlink(temp.path(), dir.root.join("web/local")).unwrap();
        assert!(dir.build_task("web", 0).is_err());
        dir.destroy(["web"]).unwrap();
        assert!(temp.path().exists());
    }

    #[test]
    fn names_that_are_no_directory_are_refused() {
        let (_temp, dir) = dir();
        dir.build().unwrap();
        for name in ["", "alloc", "..", "a/b", ".hidden"] {
            assert!(dir.build_task(name, 0).is_err(), "{name:?}");
        }
    }

    #[test]
    fn no_write_leaves_the_directory() {
        let (temp, dir) = dir();
        dir.build().unwrap();
        dir.build_task("web", 0).unwrap();
        let local = dir.task("web").join("local");
        write_within(&local, "sub/in.json", b"{}", 0o644).unwrap();
        assert_eq!(std::fs::read(local.join("sub/in.json")).unwrap(), b"{}");
        symlink(temp.path(), local.join("out")).unwrap();
        for path in ["../x", "a/../../x", "out/x", ""] {
            assert!(write_within(&local, path, b"x", 0o644).is_err(), "{path:?}");
        }
        dir.destroy(["web"]).unwrap();
    }

    #[test]
    fn no_read_leaves_the_allocation() {
        let (temp, dir) = dir();
        dir.build().unwrap();
        std::fs::write(temp.path().join("outside"), "x").unwrap();
        symlink(temp.path().join("outside"), dir.root.join("alloc/abs")).unwrap();
        symlink("../../../outside", dir.root.join("alloc/rel")).unwrap();
        symlink("/proc/self/root/etc", dir.root.join("alloc/magic")).unwrap();
        for path in ["alloc/abs", "alloc/rel", "alloc/magic/passwd", "../outside"] {
            assert!(open_within(&dir.root, path, OFlags::RDONLY).is_err(), "{path}");
        }
        dir.destroy([]).unwrap();
    }
}
