//! The last steps before a program is executed, the same for a task and for a
//! command run beside it: limits, capabilities, user, signals, exec.

use std::ffi::CString;

use crate::messages::StartRequest;
use crate::spawn::{self, StringArray};
use crate::sys::{self, Errno, Sys};

/// What ends a machine's processes (SIGHUP, SIGINT, SIGTERM) ends the task; the
/// shim stays to record it.
pub const SHIM_IGNORES: [i32; 3] = [1, 2, 15];
/// Highest capability number looked at.
const LAST_CAPABILITY: u32 = 63;

/// Everything prepared before the child exists, so that it only has to call.
pub struct Program {
    candidates: Vec<CString>,
    argv: StringArray,
    env: StringArray,
}

impl Program {
    pub fn new(exe: &[u8], argv: &[Vec<u8>], env: &[Vec<u8>]) -> Sys<Program> {
        Ok(Program { candidates: candidates(exe, env)?, argv: StringArray::new(argv)?, env: StringArray::new(env)? })
    }

    /// Tries each candidate; returns why none could be executed.
    pub fn exec(&self) -> Errno {
        let mut worst = Errno::NOENT;
        for path in &self.candidates {
            match spawn::exec(path, &self.argv, &self.env) {
                Errno::NOENT | Errno::NOTDIR => {}
                e @ Errno::ACCES => worst = e,
                e => return e,
            }
        }
        worst
    }
}

/// Where the program may be: itself if it is a path, else in each directory of
/// the environment's `PATH`.
fn candidates(exe: &[u8], env: &[Vec<u8>]) -> Sys<Vec<CString>> {
    const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
    if exe.contains(&b'/') {
        return Ok(vec![sys::cstr(exe)?]);
    }
    let path = env.iter().find_map(|e| e.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
    path.split(|b| *b == b':').filter(|dir| !dir.is_empty()).map(|dir| sys::cstr(&[dir, b"/", exe].concat())).collect()
}

/// Writes the task's own `oom_score_adj`. Has to be done while the host's
/// `/proc` is still in sight.
pub fn set_oom_score(value: i32, inherited: i32) -> Sys<()> {
    if value == inherited {
        return Ok(());
    }
    write_oom_score(value)
}

/// Writes `oom_score_adj` of this process.
pub fn write_oom_score(value: i32) -> Sys<()> {
    let file = sys::open_at(sys::AT_FDCWD, b"/proc/self/oom_score_adj", sys::O_WRONLY, 0)?;
    sys::write_all(std::os::fd::AsRawFd::as_raw_fd(&file), value.to_string().as_bytes())
}

/// Limits, capabilities, user, privileges.
pub fn become_user(req: &StartRequest) -> Result<(), (&'static str, Errno)> {
    for limit in &req.rlimits {
        sys::set_limit(limit.resource, limit.soft, limit.hard).map_err(|e| ("set limit", e))?;
    }
    if let Some(keep) = req.cap_bounding {
        for capability in (0..=LAST_CAPABILITY).filter(|c| keep & (1 << c) == 0) {
            match sys::drop_from_bounding_set(capability) {
                Ok(()) => {}
                Err(Errno::INVAL) => break, // The kernel knows no more.
                Err(e) => return Err(("drop capabilities", e)),
            }
        }
    }
    if !req.keep_user {
        let grant = req.uid != 0 && req.cap_ambient != 0;
        if grant {
            sys::keep_capabilities().map_err(|e| ("keep capabilities", e))?;
        }
        sys::set_user(req.uid, req.gid, &req.groups).map_err(|e| ("set user", e))?;
        if grant {
            sys::grant_ambient(req.cap_ambient).map_err(|e| ("grant capabilities", e))?;
        }
    }
    if req.no_new_privs {
        sys::forbid_new_privileges().map_err(|e| ("forbid new privileges", e))?;
    }
    Ok(())
}

/// Signals as a program expects to find them, whatever our caller ignored.
pub fn reset_signals() {
    for signal in 1..=sys::LAST_SIGNAL {
        sys::default_action(signal);
    }
    sys::block_only(&[]);
}

/// Undoes what a shim, which descends from a process that called
/// [`reset_signals`], has changed for itself.
pub fn restore_signals() {
    for signal in SHIM_IGNORES.into_iter().chain([sys::SIGPIPE]) {
        sys::default_action(signal);
    }
    sys::block_only(&[]);
}

/// Joins a cgroup through an open control file. A version 1 hierarchy is given
/// its `tasks` file: moving the one thread there is needs no lock that other
/// forks wait for.
pub fn join(control: std::os::fd::RawFd) -> Sys<()> {
    sys::write_all(control, b"0")
}
