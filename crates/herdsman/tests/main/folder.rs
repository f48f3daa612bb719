//! A folder for a test whose agents or nodes leave running tasks and mounted directories behind, as they are meant to.

use std::path::{Path, PathBuf};

/// Removed when it is dropped, with the processes that work in it and the mounts below it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let path = self.path().to_path_buf();
        // The zygote first, which starts others.
        for _ in 0..2 {
            end_processes(&path);
        }
        let mut mounts = mounts_below(&path);
        mounts.reverse();
        for mount in mounts {
            let _ = rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// Kills what has its working directory in the folder.
fn end_processes(folder: &Path) {
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        if std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// In the order they were made.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = text.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    points.filter(|point| point.starts_with(folder)).collect()
}
