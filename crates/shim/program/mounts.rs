//! The file system of an isolated task. Runs in the task's own mount
//! namespace, before the program is executed.
//!
//! Targets are resolved inside the new root by the kernel (`openat2`), so a
//! link that a tenant left there cannot lead a mount or a new file outside.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use crate::messages::{Isolation, MountStep};
use crate::sys::{self, Errno, Sys};

/// What went wrong and with what.
pub type StepError = (&'static str, Vec<u8>, Errno);

fn at(stage: &'static str, what: &[u8]) -> impl Fn(Errno) -> StepError {
    let what = what.to_vec();
    move |e| (stage, what.clone(), e)
}

/// The path by which the kernel reaches an open file.
fn fd_path(fd: RawFd) -> Vec<u8> {
    format!("/proc/self/fd/{fd}").into_bytes()
}

/// Builds the view and makes it the root.
pub fn build(plan: &Isolation) -> Result<(), StepError> {
    sys::mount_fs(b"", b"/", b"", sys::MS_REC | sys::MS_SLAVE, b"").map_err(at("unshare mounts", b"/"))?;
    let bind = sys::MS_BIND | sys::MS_REC;
    sys::mount_fs(&plan.root, &plan.root, b"", bind, b"").map_err(at("bind root", &plan.root))?;
    let flags = sys::O_PATH | sys::O_DIRECTORY | sys::O_NOFOLLOW;
    let root = sys::open_at(sys::AT_FDCWD, &plan.root, flags, 0).map_err(at("open root", &plan.root))?;
    // Device nodes a task makes for itself open nothing.
    attributes(&root, sys::ATTR_NODEV).map_err(at("forbid devices in", &plan.root))?;
    for step in &plan.steps {
        run(root.as_raw_fd(), step)?;
    }
    sys::change_dir_to(root.as_raw_fd()).map_err(at("enter root", &plan.root))?;
    if plan.no_pivot {
        sys::mount_fs(b".", b"/", b"", sys::MS_MOVE, b"").map_err(at("move root", &plan.root))?;
        sys::chroot_here().map_err(at("chroot", &plan.root))?;
        sys::change_dir(b"/").map_err(at("chroot", &plan.root))?;
    } else {
        sys::pivot_here().map_err(at("pivot_root", &plan.root))?;
    }
    if !plan.hostname.is_empty() {
        sys::set_host_name(&plan.hostname).map_err(at("set host name", &plan.hostname))?;
    }
    Ok(())
}

fn run(root: RawFd, step: &MountStep) -> Result<(), StepError> {
    match step {
        MountStep::Bind { source, target, readonly, devices, propagation, optional } => {
            let path = std::path::Path::new(std::ffi::OsStr::from_bytes(source));
            let meta = match std::fs::metadata(path) {
                Ok(meta) => meta,
                Err(e) if *optional && e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(("find mount source", source.clone(), e.into())),
            };
            let wanted = if *readonly { sys::ATTR_RDONLY } else { 0 } | if *devices { 0 } else { sys::ATTR_NODEV };
            bind(root, source, target, meta.is_dir(), wanted, *propagation).map_err(at("bind mount", source))
        }
        MountStep::Fs { fstype, target, flags, data, optional } => {
            let mounted = ensure(root, target, true)
                .and_then(|place| sys::mount_fs(fstype, &fd_path(place.as_raw_fd()), fstype, *flags, data));
            if *optional { Ok(()) } else { mounted.map_err(at("mount", target)) }
        }
        MountStep::Symlink { content, target } => {
            let (parent, last) = parent(root, target).map_err(at("make link", target))?;
            ignore_existing(sys::symlink_at(content, parent.as_raw_fd(), &last)).map_err(at("make link", target))
        }
        MountStep::Node { target, mode, major, minor } => {
            let (parent, last) = parent(root, target).map_err(at("make device", target))?;
            let made = sys::mknod_at(parent.as_raw_fd(), &last, *mode, Some((*major, *minor)));
            ignore_existing(made).map_err(at("make device", target))
        }
        MountStep::Mask { target } => mask(root, target).map_err(at("hide", target)),
        MountStep::Readonly { target } => make_readonly(root, target).map_err(at("make read-only", target)),
    }
}

fn ignore_existing(result: Sys<()>) -> Sys<()> {
    match result {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// The parent directory of `target` (made if need be) and its last component.
fn parent(root: RawFd, target: &[u8]) -> Sys<(OwnedFd, Vec<u8>)> {
    let parts: Vec<&[u8]> = target.split(|b| *b == b'/').filter(|p| !p.is_empty()).collect();
    let (last, before) = parts.split_last().ok_or(Errno::INVAL)?;
    if parts.iter().any(|p| *p == b"..") {
        return Err(Errno::INVAL);
    }
    let mut dir = sys::open_in_root(root, b"/", sys::O_PATH | sys::O_DIRECTORY)?;
    let mut path = Vec::new();
    for part in before {
        path.push(b'/');
        path.extend_from_slice(part);
        let open = || sys::open_in_root(root, &path, sys::O_PATH | sys::O_DIRECTORY);
        dir = match open() {
            Err(Errno::NOENT) => {
                ignore_existing(sys::mkdir_at(dir.as_raw_fd(), part, 0o755))?;
                open()?
            }
            other => other?,
        };
    }
    Ok((dir, last.to_vec()))
}

/// The open place to mount on, made as a directory or an empty file.
fn ensure(root: RawFd, target: &[u8], directory: bool) -> Sys<OwnedFd> {
    if target.iter().all(|b| *b == b'/') {
        return sys::open_in_root(root, b"/", sys::O_PATH);
    }
    let (parent, last) = parent(root, target)?;
    match sys::open_in_root(root, target, sys::O_PATH) {
        Err(Errno::NOENT) => {
            let made = if directory {
                sys::mkdir_at(parent.as_raw_fd(), &last, 0o755)
            } else {
                sys::mknod_at(parent.as_raw_fd(), &last, 0o644, None)
            };
            ignore_existing(made)?;
            sys::open_in_root(root, target, sys::O_PATH)
        }
        other => other,
    }
}

fn bind(root: RawFd, source: &[u8], target: &[u8], directory: bool, wanted: u64, propagation: u64) -> Sys<()> {
    let place = ensure(root, target, directory)?;
    sys::mount_fs(source, &fd_path(place.as_raw_fd()), b"", sys::MS_BIND | sys::MS_REC, b"")?;
    let top = sys::open_in_root(root, target, sys::O_PATH)?;
    if propagation != 0 {
        sys::mount_fs(b"", &fd_path(top.as_raw_fd()), b"", propagation | sys::MS_REC, b"")?;
    }
    attributes(&top, wanted)
}

/// Sets attributes on a mount; before Linux 5.12 on that one only, not on
/// those below.
fn attributes(top: &OwnedFd, wanted: u64) -> Sys<()> {
    if wanted == 0 {
        return Ok(());
    }
    match sys::set_mount_attributes(top.as_raw_fd(), wanted) {
        Err(Errno::NOSYS) => {
            let flags = sys::MS_REMOUNT | sys::MS_BIND | wanted;
            sys::mount_fs(b"", &fd_path(top.as_raw_fd()), b"", flags, b"")
        }
        other => other,
    }
}

fn mask(root: RawFd, target: &[u8]) -> Sys<()> {
    let place = match sys::open_in_root(root, target, sys::O_PATH) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let directory = sys::open_in_root(root, target, sys::O_PATH | sys::O_DIRECTORY).is_ok();
    let path = fd_path(place.as_raw_fd());
    if directory {
        sys::mount_fs(b"tmpfs", &path, b"tmpfs", sys::MS_RDONLY, b"size=0k")
    } else {
        sys::mount_fs(b"/dev/null", &path, b"", sys::MS_BIND, b"")
    }
}

fn make_readonly(root: RawFd, target: &[u8]) -> Sys<()> {
    let place = match sys::open_in_root(root, target, sys::O_PATH) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let path = fd_path(place.as_raw_fd());
    sys::mount_fs(&path, &path, b"", sys::MS_BIND | sys::MS_REC, b"")?;
    attributes(&sys::open_in_root(root, target, sys::O_PATH)?, sys::ATTR_RDONLY)
}
