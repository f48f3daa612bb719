//! A command run beside the task: as its user, with its environment, in its
//! namespaces and cgroups.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::identity::{self, Program};
use crate::messages::{ExecRequest, StartRequest};
use crate::mounts::StepError;
use crate::sys::{self, Errno};

/// Where the child keeps the pipe for its report.
const REPORT_FD: i32 = 3;
/// Longest report of a failure, in bytes.
const MAX_REPORT: usize = 4096;

/// Starts the command and returns the process to wait for; a failure to start
/// comes with its step.
pub fn start(
    req: &StartRequest,
    task: i32,
    exec: &ExecRequest,
    fds: &[OwnedFd],
    inherited_oom: i32,
) -> Result<i32, StepError> {
    let bad = |text: &str| ("exec", text.as_bytes().to_vec(), Errno::INVAL);
    let name = exec.argv.first().ok_or_else(|| bad("no command"))?;
    if fds.len() != if exec.tty { 1 } else { 3 } {
        return Err(bad("wrong number of streams"));
    }
    let program = Program::new(name, &exec.argv, &req.env).map_err(|e| ("exec", name.clone(), e))?;
    let (reader, writer) = sys::pipe(false).map_err(|e| ("make pipe", Vec::new(), e))?;
    let pid = sys::fork_process().map_err(|e| ("make process", Vec::new(), e))?;
    if pid == 0 {
        child(req, task, exec, fds, &program, &writer, inherited_oom);
    }
    drop(writer);
    match report(&reader) {
        None => Ok(pid),
        Some(e) => {
            let _ = sys::reap(pid, true);
            Err(e)
        }
    }
}

/// The failure the child reports; none when it has called exec.
fn report(reader: &OwnedFd) -> Option<StepError> {
    let mut text = Vec::new();
    let mut buf = [0; 512];
    while text.len() < MAX_REPORT {
        match sys::read_fd(reader.as_raw_fd(), &mut buf) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    let (errno, what) = text.split_first_chunk::<4>()?;
    Some(("exec", what.to_vec(), Errno(i32::from_le_bytes(*errno))))
}

/// The forked child; never returns.
fn child(
    req: &StartRequest,
    task: i32,
    exec: &ExecRequest,
    fds: &[OwnedFd],
    program: &Program,
    writer: &OwnedFd,
    inherited_oom: i32,
) -> ! {
    let result = into_task(req, task, exec, fds, writer, inherited_oom);
    let (what, errno) = match result {
        Err((stage, what, e)) => ([stage.as_bytes(), b" ", &what[..]].concat(), e),
        Ok(()) => (exec.argv.first().cloned().unwrap_or_default(), program.exec()),
    };
    let _ = sys::write_all(REPORT_FD, &[&errno.0.to_le_bytes()[..], &what[..]].concat());
    sys::exit(127)
}

fn into_task(
    req: &StartRequest,
    task: i32,
    exec: &ExecRequest,
    fds: &[OwnedFd],
    writer: &OwnedFd,
    inherited_oom: i32,
) -> Result<(), StepError> {
    let fail = |stage: &'static str| move |e| (stage, Vec::new(), e);
    sys::new_session().map_err(fail("make session"))?;
    for to in 0..3 {
        let from = fds.get(if exec.tty { 0 } else { to }).ok_or(("exec", Vec::new(), Errno::BADF))?;
        let to = i32::try_from(to).unwrap_or(0);
        sys::install(from.as_raw_fd(), to).map_err(fail("redirect streams"))?;
    }
    if exec.tty {
        sys::take_terminal(0).map_err(fail("take terminal"))?;
    }
    sys::install(writer.as_raw_fd(), REPORT_FD).map_err(fail("redirect streams"))?;
    // Also the lock of the run directory: it must not outlive the shim.
    sys::close_from(REPORT_FD.unsigned_abs() + 1);
    sys::close_on_exec(REPORT_FD).map_err(fail("redirect streams"))?;
    for plan in &req.cgroups {
        let file = [&plan.dir[..], if plan.v2 { b"/cgroup.procs" } else { b"/tasks" }].concat();
        let joined = sys::open_at(sys::AT_FDCWD, &file, sys::O_WRONLY, 0).and_then(|f| identity::join(f.as_raw_fd()));
        if let (Err(e), false) = (joined, plan.optional) {
            return Err(("join cgroup", plan.dir.clone(), e));
        }
    }
    identity::set_oom_score(req.oom_score_adj, inherited_oom).map_err(fail("set oom_score_adj"))?;
    enter_namespaces(req, task)?;
    sys::change_dir(&req.cwd).map_err(|e| ("enter working directory", req.cwd.clone(), e))?;
    identity::become_user(req).map_err(|(stage, e)| (stage, Vec::new(), e))?;
    sys::die_with_parent().map_err(fail("watch parent"))?;
    identity::restore_signals();
    Ok(())
}

fn enter_namespaces(req: &StartRequest, task: i32) -> Result<(), StepError> {
    let open = |what: &str| {
        let path = format!("/proc/{task}/{what}").into_bytes();
        sys::open_at(sys::AT_FDCWD, &path, sys::O_RDONLY, 0).map_err(|e| ("open namespace", path.clone(), e))
    };
    let enter = |fd: &OwnedFd, kind: u64, name: &'static str| {
        sys::enter_namespace(fd.as_raw_fd(), kind).map_err(|e| ("enter namespace", name.as_bytes().to_vec(), e))
    };
    if !req.netns.is_empty() {
        enter(&open("ns/net")?, sys::CLONE_NEWNET, "net")?;
    }
    let Some(plan) = &req.isolation else { return Ok(()) };
    let (root, mnt) = (open("root")?, open("ns/mnt")?);
    if plan.ipc {
        enter(&open("ns/ipc")?, sys::CLONE_NEWIPC, "ipc")?;
    }
    if !plan.hostname.is_empty() {
        enter(&open("ns/uts")?, sys::CLONE_NEWUTS, "uts")?;
    }
    if plan.pid {
        enter(&open("ns/pid")?, sys::CLONE_NEWPID, "pid")?;
    }
    enter(&mnt, sys::CLONE_NEWNS, "mnt")?;
    let failed = |e| ("enter root", Vec::new(), e);
    sys::change_dir_to(root.as_raw_fd()).map_err(failed)?;
    sys::chroot_here().map_err(failed)?;
    sys::own_keyring();
    drop((root, mnt));
    if plan.pid {
        // Only children are in the entered namespace.
        let pid = sys::fork_process().map_err(|e| ("make process", Vec::new(), e))?;
        if pid != 0 {
            stand_by(pid);
        }
    }
    Ok(())
}

/// Waits for the command in the namespace and ends as it did. Keyboard signals
/// of the terminal are for the command, not for this process.
fn stand_by(pid: i32) -> ! {
    // The report pipe, so that its end is seen when the command calls exec.
    sys::close_from(3);
    for signal in [1, 2, 3, 15, 20] {
        sys::ignore(signal);
    }
    loop {
        match sys::reap(pid, true) {
            Ok(Some(end)) if end.signal != 0 => sys::exit(128 + end.signal),
            Ok(Some(end)) => sys::exit(end.code),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => sys::exit(127),
        }
    }
}
