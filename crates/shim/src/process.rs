//! What `/proc` tells about processes.

use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::messages::PidRecord;

/// Processes looked at when searching for a session's members.
const MAX_PROCESSES: usize = 4_000_000;

/// Field `index` (counted from 1, at least 3) of a `/proc/PID/stat` line.
fn stat_field(pid: u32, index: usize) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let name_end = stat.iter().rposition(|b| *b == b')')?;
    let field = stat.get(name_end + 2..)?.split(|b| *b == b' ').nth(index.checked_sub(3)?)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Start time of a process in clock ticks since boot; none if there is no such
/// process. Together with the process id it names a process for good.
pub fn start_ticks(pid: u32) -> Option<u64> {
    stat_field(pid, 22)
}

/// Which boot of the machine this is; empty if the system does not tell.
pub fn boot_id() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim_ascii().to_vec()
}

/// Children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect()
}

/// Kills exactly the process that started at `ticks`. False when it is gone.
pub(crate) fn kill_exact(pid: u32, ticks: u64) -> bool {
    let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    // Open first, then compare: the number cannot be given to another process
    // between the comparison and the signal.
    let Ok(fd) = pidfd_open(target, PidfdFlags::empty()) else { return false };
    start_ticks(pid) == Some(ticks) && pidfd_send_signal(&fd, Signal::KILL).is_ok()
}

/// Kills the processes in a cgroup. Returns how many there were.
pub(crate) fn kill_cgroup(dir: &Path) -> usize {
    let text = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let pids: Vec<i32> = text.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect();
    if !pids.is_empty() && std::fs::write(dir.join("cgroup.kill"), "1").is_err() {
        for pid in pids.iter().filter_map(|p| Pid::from_raw(*p)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    pids.len()
}

/// Kills every process of the session a lost task had opened. Returns how many.
pub(crate) fn kill_session(record: &PidRecord) -> usize {
    let session = u64::from(record.pid);
    if session < 2 {
        return 0;
    }
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let pids = entries.take(MAX_PROCESSES).flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let ours = stat_field(*pid, 6) == Some(session);
        // A process started before the task cannot be its descendant.
        let ticks = start_ticks(*pid).filter(|t| *t >= record.start_ticks);
        ours && ticks.is_some_and(|t| kill_exact(*pid, t))
    })
    .count()
}
