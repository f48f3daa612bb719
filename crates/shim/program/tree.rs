//! Ending everything that belongs to a task.

use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::messages::StartRequest;
use crate::sys;

/// Rounds of killing before the rest is given up (processes stuck in the
/// kernel): together about ten seconds.
const MAX_ROUNDS: u32 = 500;
/// Processes killed in one round.
const MAX_PER_ROUND: usize = 65_536;

fn numbers(text: &str) -> impl Iterator<Item = i32> + '_ {
    text.split_ascii_whitespace().filter_map(|w| w.parse().ok()).take(MAX_PER_ROUND)
}

/// Kills what is in the run's own cgroups. Returns how many there were.
fn kill_cgroups(req: &StartRequest) -> u32 {
    let mut found = 0;
    for plan in req.cgroups.iter().filter(|c| c.own) {
        let file = |name: &[u8]| [&plan.dir[..], name].concat();
        // The first thousand or so; the caller comes again.
        let Ok(text) = sys::read_small(&file(b"/cgroup.procs")) else { continue };
        let text = String::from_utf8_lossy(&text);
        let pids: Vec<i32> = numbers(&text).collect();
        if pids.is_empty() {
            continue;
        }
        found = found.max(u32::try_from(pids.len()).unwrap_or(u32::MAX));
        let at_once = plan.v2
            && sys::open_at(sys::AT_FDCWD, &file(b"/cgroup.kill"), sys::O_WRONLY, 0)
                .and_then(|f| sys::write_all(f.as_raw_fd(), b"1"))
                .is_ok();
        if !at_once {
            for pid in pids {
                let _ = sys::send_signal(pid, sys::SIGKILL);
            }
        }
    }
    found
}

/// Kills this process's children: with the orphans that come to it as a
/// subreaper, round by round, that is every descendant.
fn kill_children() -> u32 {
    let me = std::process::id();
    let Ok(text) = std::fs::read_to_string(format!("/proc/{me}/task/{me}/children")) else { return 0 };
    let mut found = 0;
    for pid in numbers(&text) {
        found += u32::from(sys::send_signal(pid, sys::SIGKILL).is_ok());
    }
    found
}

/// SIGKILL to the task, its process group, its cgroups.
pub fn kill_all(req: &StartRequest, pid: i32) {
    let _ = sys::send_signal(pid, sys::SIGKILL);
    let _ = sys::send_signal(-pid, sys::SIGKILL);
    kill_cgroups(req);
}

/// After the task's first process has ended: ends the rest. Returns how many
/// processes were left behind.
pub fn clear(req: &StartRequest, pid: i32) -> u32 {
    let _ = sys::send_signal(-pid, sys::SIGKILL);
    let mut left = kill_cgroups(req);
    for round in 0..MAX_ROUNDS {
        loop {
            match sys::reap(-1, false) {
                Ok(Some(_)) => left = left.max(1),
                Ok(None) => break,
                Err(_) => return left,
            }
        }
        left = left.max(kill_children()).max(kill_cgroups(req));
        std::thread::sleep(Duration::from_millis(u64::from(round.min(20))));
    }
    left
}

/// Removes the run's own cgroups. The kernel may need a moment to notice that
/// they are empty.
pub fn remove_cgroups(req: &StartRequest) {
    for plan in req.cgroups.iter().filter(|c| c.own) {
        for wait_ms in [0, 1, 5, 20, 100] {
            std::thread::sleep(Duration::from_millis(wait_ms));
            match sys::rmdir(&plan.dir) {
                Ok(()) | Err(sys::Errno::NOENT) => break,
                Err(_) => {
                    kill_cgroups(req);
                }
            }
        }
    }
}
