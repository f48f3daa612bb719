//! From a start request to a running task.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::identity::{self, Program};
use crate::logs::Pump;
use crate::messages::{CgroupPlan, StartRequest};
use crate::mounts::{self, StepError};
use crate::spawn;
use crate::sys::{self, Errno};

/// A task that has just been started.
pub struct Launched {
    pub pid: i32,
    pub pumps: Vec<Pump>,
}

/// A cgroup of the task, with what is needed to get in.
struct Joinable {
    /// Version 2: the directory; version 1: its `tasks` file.
    fd: OwnedFd,
    v2: bool,
    optional: bool,
    dir: Vec<u8>,
}

fn fail(stage: &'static str, what: &[u8]) -> impl FnOnce(Errno) -> StepError {
    let what = what.to_vec();
    move |e| (stage, what, e)
}

/// Makes a cgroup, sets its limits and opens it.
fn prepare(plan: &CgroupPlan) -> Result<Joinable, StepError> {
    if plan.own {
        match sys::mkdir_at(sys::AT_FDCWD, &plan.dir, 0o755) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(("make cgroup", plan.dir.clone(), e)),
        }
    }
    let flags = sys::O_PATH | sys::O_DIRECTORY;
    let dir = sys::open_at(sys::AT_FDCWD, &plan.dir, flags, 0).map_err(fail("open cgroup", &plan.dir))?;
    for write in &plan.writes {
        let written = sys::open_at(dir.as_raw_fd(), &write.file, sys::O_WRONLY, 0)
            .and_then(|file| sys::write_all(file.as_raw_fd(), &write.value));
        if let (Err(e), false) = (written, write.optional) {
            let what = [&plan.dir[..], b"/", &write.file[..], b" = ", &write.value[..]].concat();
            return Err(("limit", what, e));
        }
    }
    let fd = if plan.v2 {
        dir
    } else {
        sys::open_at(dir.as_raw_fd(), b"tasks", sys::O_WRONLY, 0).map_err(fail("open cgroup", &plan.dir))?
    };
    Ok(Joinable { fd, v2: plan.v2, optional: plan.optional, dir: plan.dir.clone() })
}

fn prepare_all(req: &StartRequest) -> Result<Vec<Joinable>, StepError> {
    let mut out = Vec::with_capacity(req.cgroups.len());
    for plan in &req.cgroups {
        match prepare(plan) {
            Ok(joinable) => out.push(joinable),
            Err(_) if plan.optional => {}
            Err(e) => return Err(e),
        }
    }
    Ok(out)
}

/// Starts the task. On failure nothing of it is left but empty log files.
pub fn launch(req: &StartRequest, inherited_oom: i32) -> Result<Launched, StepError> {
    let program = Program::new(&req.exe, &req.argv, &req.env).map_err(fail("prepare command", &req.exe))?;
    let mut pumps = Vec::new();
    let mut writers = Vec::new();
    if let Some(log) = &req.log {
        for base in [&log.stdout, &log.stderr] {
            let mut pump = Pump::open(log, base).map_err(fail("open log files in", &log.dir))?;
            let (reader, writer) = sys::pipe(true).map_err(fail("make pipe", b""))?;
            pump.pipe = Some(reader);
            pumps.push(pump);
            writers.push(writer);
        }
    }
    let started = prepare_all(req).and_then(|groups| spawn(req, &program, &groups, &writers, inherited_oom));
    match started {
        Ok(pid) => Ok(Launched { pid, pumps }),
        Err(e) => {
            remove_own_cgroups(req);
            Err(e)
        }
    }
}

pub fn remove_own_cgroups(req: &StartRequest) {
    for plan in req.cgroups.iter().filter(|c| c.own) {
        let _ = sys::rmdir(&plan.dir);
    }
}

fn spawn(
    req: &StartRequest,
    program: &Program,
    groups: &[Joinable],
    writers: &[OwnedFd],
    inherited_oom: i32,
) -> Result<i32, StepError> {
    let mut flags = 0;
    if let Some(plan) = &req.isolation {
        flags |= sys::CLONE_NEWNS;
        flags |= if plan.pid { sys::CLONE_NEWPID } else { 0 };
        flags |= if plan.ipc { sys::CLONE_NEWIPC } else { 0 };
        flags |= if plan.hostname.is_empty() { 0 } else { sys::CLONE_NEWUTS };
    }
    let netns = match &req.netns[..] {
        [] => None,
        path => {
            Some(sys::open_at(sys::AT_FDCWD, path, sys::O_RDONLY, 0).map_err(fail("open network namespace", path))?)
        }
    };
    let born_in = groups.iter().find(|g| g.v2).map(|g| g.fd.as_raw_fd());
    let me = std::process::id();
    let mut problem: Option<StepError> = None;
    let mut body = || {
        let result = in_child(req, program, groups, writers, netns.as_ref(), inherited_oom, me);
        problem = Some(result);
    };
    let pid = spawn::spawn_sharing(flags, born_in, &mut body).map_err(fail("make process", b""))?;
    match problem {
        None => Ok(pid),
        Some(e) => {
            let _ = sys::reap(pid, true);
            Err(e)
        }
    }
}

/// Runs in the child. Returns only when something failed.
fn in_child(
    req: &StartRequest,
    program: &Program,
    groups: &[Joinable],
    writers: &[OwnedFd],
    netns: Option<&OwnedFd>,
    inherited_oom: i32,
    shim: u32,
) -> StepError {
    match until_exec(req, groups, writers, netns, inherited_oom, shim) {
        Err(e) => e,
        Ok(()) => ("exec", req.exe.clone(), program.exec()),
    }
}

fn until_exec(
    req: &StartRequest,
    groups: &[Joinable],
    writers: &[OwnedFd],
    netns: Option<&OwnedFd>,
    inherited_oom: i32,
    shim: u32,
) -> Result<(), StepError> {
    sys::new_session().map_err(fail("make session", b""))?;
    for group in groups.iter().filter(|g| !g.v2) {
        match identity::join(group.fd.as_raw_fd()) {
            Err(e) if !group.optional => return Err(("join cgroup", group.dir.clone(), e)),
            _ => {}
        }
    }
    // Standard input is the zygote's /dev/null, and so are the others if
    // nobody wants the output.
    for (writer, to) in writers.iter().zip(1..) {
        sys::install(writer.as_raw_fd(), to).map_err(fail("redirect output", b""))?;
    }
    if let Some(fd) = netns {
        sys::enter_namespace(fd.as_raw_fd(), sys::CLONE_NEWNET).map_err(fail("enter network namespace", &req.netns))?;
    }
    identity::set_oom_score(req.oom_score_adj, inherited_oom).map_err(fail("set oom_score_adj", b""))?;
    let isolated = req.isolation.is_some();
    if let Some(plan) = &req.isolation {
        sys::own_keyring();
        mounts::build(plan)?;
    }
    sys::change_dir(&req.cwd).map_err(fail("enter working directory", &req.cwd))?;
    identity::become_user(req).map_err(|(stage, e)| (stage, req.label.clone(), e))?;
    sys::die_with_parent().map_err(fail("watch parent", b""))?;
    if !isolated && sys::parent_pid().unsigned_abs() != shim {
        return Err(("watch parent", b"the shim is gone".to_vec(), Errno(3)));
    }
    identity::restore_signals();
    sys::close_from(3);
    Ok(())
}

/// Start time of a process in clock ticks since boot.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = sys::read_small(format!("/proc/{pid}/stat").as_bytes()).ok()?;
    let after_name = stat.iter().rposition(|b| *b == b')')?;
    // Field 22 of the line; the name was field 2.
    let field = stat.get(after_name + 2..)?.split(|b| *b == b' ').nth(19)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The kernel killed something in one of the run's cgroups for want of memory.
pub fn out_of_memory(req: &StartRequest) -> bool {
    req.cgroups.iter().filter(|c| c.own).any(|plan| {
        let file = if plan.v2 { &b"/memory.events"[..] } else { b"/memory.oom_control" };
        let Ok(text) = sys::read_small(&[&plan.dir[..], file].concat()) else { return false };
        let text = String::from_utf8_lossy(&text);
        text.lines().filter_map(|l| l.strip_prefix("oom_kill ")).any(|n| n.trim() != "0")
    })
}
