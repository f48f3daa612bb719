//! The shim program: outlives the agent and owns a task.
//!
//! Run by the agent once per node data directory as
//! `herdsman-zygote RUN_ROOT NAME [CONTROL_FILE...]`. It leaves the agent's
//! session, cgroup (by writing itself into each control file) and limits, listens on
//! `RUN_ROOT/NAME.sock`, and makes one child per connection. The child reads
//! the request and becomes the shim of that task, so that a task costs one
//! fork of a small program and one exec. Single-threaded throughout, without
//! dependencies; statically linked at a fixed address, so that almost all of
//! its memory is shared.
//!
//! Architecture invariant: it knows processes, files and cgroups; never jobs,
//! allocations or drivers.
//! Architecture invariant: a run file's lock is held by exactly one shim
//! for as long as its task may be alive.

#[path = "../src/codec.rs"]
mod codec;
mod control;
mod exec;
mod identity;
mod inherit;
mod launch;
mod logs;
#[path = "../src/messages.rs"]
mod messages;
mod mounts;
mod spawn;
mod sys;
mod tree;
#[path = "../src/wire.rs"]
mod wire;

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use codec::Message;
use messages::{ExitRecord, Failure, Hello, PidRecord, StartRequest, kind};
use sys::Errno;

/// Starts waiting to be accepted.
const BACKLOG: i32 = 4096;
/// How long a caller may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often, each a hundredth of a second apart, a second start looks for the
/// record of a first one that is still starting.
const STARTING_TRIES: u32 = 3000;

/// How often an idle zygote looks whether its directory is still there.
const LOOK_MS: i32 = 30_000;

/// What the zygote hands to each shim.
struct Zygote {
    lock_name: Vec<u8>,
    boot_id: Vec<u8>,
    oom_score: i32,
    notes: Vec<Vec<u8>>,
}

fn main() {
    let args: Vec<Vec<u8>> = std::env::args_os().map(OsStringExt::into_vec).collect();
    let (Some(root), Some(name)) = (args.get(1), args.get(2)) else {
        say("usage: herdsman-zygote RUN_ROOT NAME [CONTROL_FILE...]");
        sys::exit(2);
    };
    match zygote(root, name, args.get(3..).unwrap_or_default()) {
        Ok(()) => sys::exit(0),
        Err((what, e)) => {
            say(&format!("error: {what}: {}", std::io::Error::from_raw_os_error(e.0)));
            sys::exit(1);
        }
    }
}

/// A line for the agent, which reads our standard output until we are ready.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn zygote(root: &[u8], name: &[u8], control_files: &[Vec<u8>]) -> Result<(), (&'static str, Errno)> {
    let at = |what: &'static str| move |e: Errno| (what, e);
    sys::change_dir(root).map_err(at("enter run directory"))?;
    // Twice, so that it is neither a session leader nor the agent's child.
    for _ in 0..2 {
        if sys::fork_process().map_err(at("fork"))? != 0 {
            sys::exit(0);
        }
        let _ = sys::new_session();
    }
    sys::close_from(3);
    sys::set_umask(0o022);
    sys::set_name(c"herdsman-zygote");
    identity::reset_signals();
    sys::ignore(sys::SIGCHLD); // Ended shims need no reaping.
    sys::ignore(sys::SIGPIPE);
    let file = |end: &str| [name, end.as_bytes()].concat();
    let lock =
        sys::open_at(sys::AT_FDCWD, &file(".pid"), sys::O_RDWR | sys::O_CREAT, 0o600).map_err(at("open lock"))?;
    if sys::try_lock(lock.as_raw_fd()).is_err() {
        say("ready"); // Another one was faster.
        return Ok(());
    }
    let notes = leave_cgroups(control_files);
    inherit::shed();
    let me = std::process::id();
    let boot_id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim_ascii().to_vec();
    let record = PidRecord {
        pid: me,
        start_ticks: launch::start_ticks(me).unwrap_or(0),
        boot_id: boot_id.clone(),
        ..PidRecord::default()
    };
    sys::write_at(lock.as_raw_fd(), &wire::record(&record.encode()), 0).map_err(at("write process id"))?;
    let socket = file(".sock");
    let _ = sys::unlink_at(sys::AT_FDCWD, &socket);
    let path = Path::new(std::ffi::OsStr::from_bytes(&socket));
    let listener = UnixListener::bind(path).map_err(|e| ("listen", Errno::from(e)))?;
    sys::set_backlog(listener.as_raw_fd(), BACKLOG).map_err(at("listen"))?;
    let oom_score = std::fs::read_to_string("/proc/self/oom_score_adj").ok();
    let oom_score = oom_score.and_then(|t| t.trim().parse().ok()).unwrap_or(0);
    say("ready");
    let null = sys::open_at(sys::AT_FDCWD, b"/dev/null", sys::O_RDWR, 0).map_err(at("open /dev/null"))?;
    for stream in 0..3 {
        sys::install(null.as_raw_fd(), stream).map_err(at("redirect streams"))?;
    }
    drop(null);
    serve(&listener, &Zygote { lock_name: file(".pid"), boot_id, oom_score, notes }, lock)
}

/// Moves this process where the agent's service cannot reach it.
fn leave_cgroups(control_files: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut notes = Vec::new();
    for file in control_files {
        let joined = sys::open_at(sys::AT_FDCWD, file, sys::O_WRONLY, 0).and_then(|f| identity::join(f.as_raw_fd()));
        if let Err(e) = joined {
            let why = format!(": {}", std::io::Error::from_raw_os_error(e.0));
            notes.push([&file[..], why.as_bytes()].concat());
        }
    }
    notes
}

/// True while this open file is the one of this name.
fn is_file_at(file: &OwnedFd, name: &[u8]) -> bool {
    use std::os::unix::fs::MetadataExt;
    let here = std::fs::metadata(Path::new(std::ffi::OsStr::from_bytes(name)));
    let ours = file.try_clone().map(std::fs::File::from).and_then(|f| f.metadata());
    matches!((here, ours), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn serve(listener: &UnixListener, zygote: &Zygote, lock: OwnedFd) -> Result<(), (&'static str, Errno)> {
    let mut lock = Some(lock);
    let mut fds = [sys::PollFd { fd: listener.as_raw_fd(), events: sys::POLLIN, revents: 0 }];
    loop {
        fds[0].revents = 0;
        let waited = sys::poll_fds(&mut fds, LOOK_MS);
        if waited.is_ok() && fds[0].revents == 0 {
            if lock.as_ref().is_some_and(|l| !is_file_at(l, &zygote.lock_name)) {
                return Ok(()); // The data directory was removed; nobody can find us.
            }
            continue;
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Out of descriptors or memory: others have to give up some.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        match sys::fork_process() {
            Ok(0) => {
                // The lock is the zygote's alone.
                drop(lock.take());
                let _ = sys::install(1, listener.as_raw_fd()); // Closes our copy of the socket.
                let _ = sys::close_on_exec(listener.as_raw_fd());
                shim(stream, zygote);
                sys::exit(0);
            }
            Ok(_) => {}
            Err(e) => {
                let failure = Failure { stage: b"fork".to_vec(), errno: e.0, ..Failure::default() };
                let _ = control::send(&stream, kind::FAILED, &failure.encode());
            }
        }
    }
}

/// The child of one connection.
fn shim(mut stream: UnixStream, zygote: &Zygote) {
    sys::set_name(c"herdsman-shim");
    sys::default_action(sys::SIGCHLD);
    sys::block_only(&[sys::SIGCHLD]);
    identity::SHIM_IGNORES.into_iter().for_each(sys::ignore);
    let _ = stream.set_read_timeout(Some(REQUEST_TIMEOUT));
    let Some((frame_kind, body)) = control::read_frame(&mut stream) else { return };
    match frame_kind {
        kind::HELLO => {
            let hello = Hello { pid: sys::parent_pid().unsigned_abs(), notes: zygote.notes.clone() };
            let _ = control::send(&stream, kind::HELLO_REPLY, &hello.encode());
        }
        kind::START => match StartRequest::decode(&body) {
            Ok(req) => {
                drop(body);
                start(stream, req, zygote);
            }
            Err(e) => {
                let failure = Failure { stage: b"read request".to_vec(), detail: e.to_string().into_bytes(), errno: 0 };
                let _ = control::send(&stream, kind::FAILED, &failure.encode());
            }
        },
        _ => {}
    }
}

/// Says why a start failed.
fn refuse(stream: &UnixStream, stage: &str, detail: &[u8], e: Errno) {
    let failure = Failure { stage: stage.as_bytes().to_vec(), detail: detail.to_vec(), errno: e.0 };
    let _ = control::send(stream, kind::FAILED, &failure.encode());
}

/// What the run file says about the key.
enum Found {
    /// Nothing: start. With the locked file.
    New(OwnedFd),
    Running(PidRecord),
    Ended(ExitRecord),
    Lost(PidRecord),
}

/// Both records of a run file, as far as they are there and whole.
fn read_run(file: &[u8]) -> (Vec<u8>, Option<PidRecord>, Option<ExitRecord>) {
    let bytes = sys::read_small(file).unwrap_or_default();
    let pid = wire::open_record(&bytes).ok().and_then(|body| PidRecord::decode(body).ok());
    let exit = bytes.get(wire::EXIT_OFFSET..).and_then(|b| wire::open_record(b).ok());
    let exit = exit.and_then(|body| ExitRecord::decode(body).ok());
    (bytes, pid, exit)
}

/// Takes the run file, unless the key was started before.
fn claim(path: &[u8]) -> Result<Found, Errno> {
    for _ in 0..STARTING_TRIES {
        let lock = sys::open_at(sys::AT_FDCWD, path, sys::O_RDWR | sys::O_CREAT | sys::O_NOFOLLOW, 0o600)?;
        if sys::try_lock(lock.as_raw_fd()).is_ok() {
            if !is_file_at(&lock, path) {
                continue; // It was removed between the two calls.
            }
            return Ok(match read_run(path) {
                (_, _, Some(exit)) => Found::Ended(exit),
                (bytes, None, None) if bytes.is_empty() => Found::New(lock),
                (_, record, None) => Found::Lost(record.unwrap_or_default()),
            });
        }
        match read_run(path) {
            (_, _, Some(exit)) => return Ok(Found::Ended(exit)),
            (_, Some(record), _) if record.pid != 0 => {
                return Ok(Found::Running(PidRecord { existing: true, ..record }));
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Err(Errno::AGAIN)
}

fn start(stream: UnixStream, req: StartRequest, zygote: &Zygote) {
    let answer = |kind, body: &[u8]| {
        let _ = control::send(&stream, kind, body); // The caller may be gone.
    };
    let lock = match claim(&req.run_file) {
        Ok(Found::New(lock)) => lock,
        Ok(Found::Running(record)) => return answer(kind::STARTED, &record.encode()),
        Ok(Found::Ended(exit)) => return answer(kind::EXITED, &exit.encode()),
        Ok(Found::Lost(record)) => return answer(kind::LOST, &record.encode()),
        Err(e) => return refuse(&stream, "lock run file", &req.run_file, e),
    };
    run(stream, req, zygote, lock);
}

/// Writes the first record of a run file.
fn write_pid(lock: &OwnedFd, record: &PidRecord) -> Result<(), Errno> {
    let bytes = wire::record(&record.encode());
    if bytes.len() > wire::EXIT_OFFSET {
        return Err(Errno(36)); // ENAMETOOLONG: only the cgroups' names can make it so long.
    }
    sys::write_at(lock.as_raw_fd(), &bytes, 0)
}

/// Starts the task and stays with it.
fn run(stream: UnixStream, req: StartRequest, zygote: &Zygote, lock: OwnedFd) {
    let me = std::process::id();
    let mut record = PidRecord {
        shim_pid: me,
        shim_start_ticks: launch::start_ticks(me).unwrap_or(0),
        boot_id: zygote.boot_id.clone(),
        started_ns: control::now_ns(),
        cgroups: req.cgroups.iter().filter(|c| c.own).map(|c| c.dir.clone()).collect(),
        ..PidRecord::default()
    };
    // The file is given its block now. And before any side effect: if the shim
    // dies in the next moment, a second start must not take this run for one
    // that never began.
    let room = [0; wire::RUN_FILE];
    let reserved = sys::write_at(lock.as_raw_fd(), &room, 0).and_then(|()| write_pid(&lock, &record));
    if let Err(e) = reserved {
        let _ = sys::empty_file(lock.as_raw_fd());
        return refuse(&stream, "write run file", &req.run_file, e);
    }
    let prepared = sys::become_subreaper().and_then(|()| sys::child_signal_fd());
    let child_signals = match prepared {
        Ok(fd) => fd,
        Err(e) => {
            let _ = sys::empty_file(lock.as_raw_fd());
            return refuse(&stream, "watch children", b"", e);
        }
    };
    let launched = match launch::launch(&req, zygote.oom_score) {
        Ok(launched) => launched,
        Err((stage, what, e)) => {
            let _ = sys::empty_file(lock.as_raw_fd());
            return refuse(&stream, stage, &what, e);
        }
    };
    record.pid = launched.pid.unsigned_abs();
    record.start_ticks = launch::start_ticks(record.pid).unwrap_or(0);
    let _ = write_pid(&lock, &record); // Fitted before, and grew by two numbers at most.
    let _ = control::send(&stream, kind::STARTED, &record.encode());
    control::Shim::new(req, record, lock, launched, child_signals, stream, zygote.oom_score).run();
}
