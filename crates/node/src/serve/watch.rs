//! Waiting for a directory to change, without polling.
#![allow(unsafe_code)]

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use tokio::io::unix::AsyncFd;

/// Buffer for events that nobody looks at in detail.
const BUFFER: usize = 4096;

/// Wakes when something in a directory was written, made, moved or removed.
pub struct DirWatch {
    fd: AsyncFd<OwnedFd>,
}

impl DirWatch {
    pub fn new(dir: &Path) -> io::Result<DirWatch> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&fd, dir, flags)?;
        // SAFETY: an OwnedFd is open for as long as it lives, and nobody takes this one out again.
        let fd = unsafe { AsyncFd::register(fd)? };
        Ok(DirWatch { fd })
    }

    /// Returns once something changed since the last call.
    pub async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut guard = self.fd.readable().await?;
            let drained = guard.try_io(|fd| {
                let mut buffer = [MaybeUninit::uninit(); BUFFER];
                let mut reader = inotify::Reader::new(fd.get_ref(), &mut buffer);
                let mut any = false;
                loop {
                    match reader.next() {
                        Ok(_) => any = true,
                        Err(rustix::io::Errno::AGAIN) if any => return Ok(()),
                        Err(error) => return Err(error.into()),
                    }
                }
            });
            match drained {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }
}
