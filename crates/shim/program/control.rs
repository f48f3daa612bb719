//! The shim's life after its task has been started: one loop over the output
//! pipes, the child signal, the control socket and the deadline.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant, SystemTime};

use crate::codec::Message;
use crate::exec;
use crate::launch;
use crate::logs::Pump;
use crate::messages::{
    ExecExit, ExecRequest, ExitRecord, Failure, PidRecord, ShimStats, SignalRequest, StartRequest, kind,
};
use crate::mounts::StepError;
use crate::sys::{self, Errno, PollFd, Sys};
use crate::tree;
use crate::wire;

/// Connections open at once; more wait in the socket's queue.
const MAX_CONNECTIONS: usize = 16;
/// Bytes a connection may have sent without a whole frame.
const MAX_PENDING: usize = 256 << 10;
/// Longest text of a reason in an exit record, which has a fixed place.
const MAX_REASON: usize = 256;
/// Bytes taken from a pipe after its writers are dead; a pipe holds less.
const MAX_DRAIN: u64 = 64 << 20;

/// A task that ends sooner needs no control socket, nor the file for it: its
/// agent is still connected.
const LISTEN_AFTER: Duration = Duration::from_millis(50);
/// Pause before trying again to make the control socket.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// A connection of the agent.
struct Connection {
    stream: UnixStream,
    pending: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// Wants to know of the end.
    waits: bool,
    /// The command run for it.
    exec: Option<i32>,
}

/// Stages of the deadline.
enum Timer {
    None,
    /// At this Unix time (ns) the signal is sent.
    Signal(u64),
    /// At this Unix time (ns) everything is killed.
    Kill(u64),
}

pub struct Shim {
    req: StartRequest,
    record: PidRecord,
    /// The run file, locked until the exit record is in it.
    lock: OwnedFd,
    pid: i32,
    pumps: Vec<Pump>,
    listener: Option<UnixListener>,
    /// When the control socket is to be made.
    listen_at: Option<Instant>,
    child_signals: OwnedFd,
    connections: Vec<Connection>,
    timer: Timer,
    deadline_met: bool,
    inherited_oom: i32,
    buffer: Vec<u8>,
}

pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Sends a frame to a caller who may be gone.
pub fn send(stream: &UnixStream, kind: u8, body: &[u8]) -> Sys<()> {
    sys::write_all(stream.as_raw_fd(), &wire::frame(kind, body))
}

pub fn failure((stage, detail, errno): StepError) -> Failure {
    Failure { stage: stage.as_bytes().to_vec(), detail, errno: errno.0 }
}

impl Shim {
    /// Takes over a started task. `starter` is told of the end.
    pub fn new(
        req: StartRequest,
        record: PidRecord,
        lock: OwnedFd,
        launched: launch::Launched,
        child_signals: OwnedFd,
        starter: UnixStream,
        inherited_oom: i32,
    ) -> Shim {
        let timer = req.deadline.map_or(Timer::None, |d| Timer::Signal(d.at_ns));
        let _ = starter.set_nonblocking(true);
        let first = Connection { stream: starter, pending: Vec::new(), fds: Vec::new(), waits: true, exec: None };
        Shim {
            req,
            record,
            lock,
            pid: launched.pid,
            pumps: launched.pumps,
            listener: None,
            listen_at: Some(Instant::now() + LISTEN_AFTER),
            child_signals,
            connections: vec![first],
            timer,
            deadline_met: false,
            inherited_oom,
            buffer: Vec::new(),
        }
    }

    /// Until the task has ended; leaves the exit record.
    pub fn run(mut self) {
        loop {
            let mut fds = self.watched();
            let timeout = self.timeout_ms();
            if let Err(e) = sys::poll_fds(&mut fds, timeout)
                && e != Errno::INTR
            {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            self.check_timer();
            let ready = |fd: i32| fds.iter().any(|p| p.fd == fd && p.revents != 0);
            let mut buffer = std::mem::take(&mut self.buffer);
            for pump in &mut self.pumps {
                if pump.pipe.as_ref().is_some_and(|p| ready(p.as_raw_fd())) {
                    pump.pump(&mut buffer);
                }
            }
            self.buffer = buffer;
            if ready(self.child_signals.as_raw_fd())
                && let Some(end) = self.reap_children()
            {
                self.finish(&end);
                return;
            }
            let talking: Vec<i32> =
                self.connections.iter().map(|c| c.stream.as_raw_fd()).filter(|fd| ready(*fd)).collect();
            for fd in talking {
                self.hear(fd);
            }
            if self.listener.as_ref().is_some_and(|l| ready(l.as_raw_fd())) {
                self.accept();
            }
            if self.listen_at.is_some_and(|at| Instant::now() >= at || self.connections.is_empty()) {
                self.listen();
            }
        }
    }

    fn watched(&self) -> Vec<PollFd> {
        let watch = |fd| PollFd { fd, events: sys::POLLIN, revents: 0 };
        let mut fds = vec![watch(self.child_signals.as_raw_fd())];
        fds.extend(self.pumps.iter().filter_map(|p| p.pipe.as_ref()).map(|p| watch(p.as_raw_fd())));
        fds.extend(self.connections.iter().map(|c| watch(c.stream.as_raw_fd())));
        if let (true, Some(listener)) = (self.connections.len() < MAX_CONNECTIONS, &self.listener) {
            fds.push(watch(listener.as_raw_fd()));
        }
        fds
    }

    fn timeout_ms(&self) -> i32 {
        /// The wall clock may be set, so it is looked at again this often.
        const LOOK_AGAIN_MS: u64 = 60_000;
        let deadline = match self.timer {
            Timer::None => None,
            Timer::Signal(at) | Timer::Kill(at) => {
                Some(at.saturating_sub(now_ns()).div_ceil(1_000_000).min(LOOK_AGAIN_MS))
            }
        };
        let listen = self.listen_at.map(|at| at.saturating_duration_since(Instant::now()).as_millis() + 1);
        let listen = listen.map(|ms| u64::try_from(ms).unwrap_or(LOOK_AGAIN_MS));
        deadline.into_iter().chain(listen).min().map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX))
    }

    /// Makes the control socket, named after the run file's inode: short enough
    /// for a socket address, and nobody else's while the file is there.
    fn listen(&mut self) {
        use std::os::unix::fs::MetadataExt;
        let made = self.lock.try_clone().map(std::fs::File::from).and_then(|f| f.metadata()).and_then(|meta| {
            let name = format!("{}.sock", meta.ino());
            let _ = sys::unlink_at(sys::AT_FDCWD, name.as_bytes());
            let listener = UnixListener::bind(&name)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        match made {
            Ok(listener) => {
                self.listener = Some(listener);
                self.listen_at = None;
            }
            Err(_) => self.listen_at = Some(Instant::now() + LISTEN_AGAIN),
        }
    }

    fn check_timer(&mut self) {
        let now = now_ns();
        match self.timer {
            Timer::Signal(at) if now >= at => {
                let deadline = self.req.deadline.unwrap_or_default();
                self.deadline_met = true;
                let _ = sys::send_signal(self.pid, deadline.signal);
                self.timer = Timer::Kill(now.saturating_add(deadline.grace_ns));
            }
            Timer::Kill(at) if now >= at => {
                tree::kill_all(&self.req, self.pid);
                self.timer = Timer::None;
            }
            _ => {}
        }
    }

    /// Reaps everything that has ended; the task's own end if it is among it.
    fn reap_children(&mut self) -> Option<sys::Reaped> {
        let mut queued = [0; 128 * 4];
        let _ = sys::read_fd(self.child_signals.as_raw_fd(), &mut queued);
        while let Ok(Some(end)) = sys::reap(-1, false) {
            if end.pid == self.pid {
                return Some(end);
            }
            self.exec_ended(&end);
        }
        None
    }

    fn exec_ended(&mut self, end: &sys::Reaped) {
        let code = if end.signal == 0 { end.code } else { 128 + end.signal };
        if let Some(at) = self.connections.iter().position(|c| c.exec == Some(end.pid)) {
            let connection = self.connections.swap_remove(at);
            let _ = send(&connection.stream, kind::EXEC_EXITED, &ExecExit { code }.encode());
        }
    }

    fn accept(&mut self) {
        let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) else { return };
        if stream.set_nonblocking(true).is_ok() {
            let new = Connection { stream, pending: Vec::new(), fds: Vec::new(), waits: false, exec: None };
            self.connections.push(new);
        }
    }

    /// Reads from a connection and does what it asks.
    fn hear(&mut self, fd: i32) {
        let Some(at) = self.connections.iter().position(|c| c.stream.as_raw_fd() == fd) else { return };
        let mut connection = self.connections.swap_remove(at);
        let mut buf = [0; 4096];
        match sys::receive(fd, &mut buf) {
            Ok((0, _)) => return Self::hung_up(&connection),
            Ok((n, fds)) => {
                connection.pending.extend_from_slice(buf.get(..n).unwrap_or_default());
                connection.fds.extend(fds);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return Self::hung_up(&connection),
        }
        while let Ok(Some((frame_kind, body, len))) = wire::take_frame(&connection.pending) {
            let body = body.to_vec();
            connection.pending.drain(..len);
            let (answer, body) = self.answer(&mut connection, frame_kind, &body);
            if answer != 0 && send(&connection.stream, answer, &body).is_err() {
                return Self::hung_up(&connection);
            }
        }
        let sane = wire::take_frame(&connection.pending).is_ok() && connection.pending.len() <= MAX_PENDING;
        if sane {
            self.connections.push(connection);
        } else {
            Self::hung_up(&connection);
        }
    }

    /// Nobody listens any more: a command run for that connection ends.
    fn hung_up(connection: &Connection) {
        if let Some(pid) = connection.exec {
            let _ = sys::send_signal(-pid, 1);
            let _ = sys::send_signal(-pid, sys::SIGKILL);
        }
    }

    /// The kind and body of the answer; kind 0 for none yet.
    fn answer(&mut self, connection: &mut Connection, frame_kind: u8, body: &[u8]) -> (u8, Vec<u8>) {
        let done = |result: Sys<()>, stage| match result {
            Ok(()) => (kind::OK, Vec::new()),
            Err(e) => (kind::FAILED, failure((stage, Vec::new(), e)).encode()),
        };
        match frame_kind {
            kind::SIGNAL => match SignalRequest::decode(body) {
                Ok(s) => done(sys::send_signal(if s.group { -self.pid } else { self.pid }, s.signal), "signal"),
                Err(_) => done(Err(Errno::INVAL), "signal"),
            },
            kind::KILL => {
                tree::kill_all(&self.req, self.pid);
                done(Ok(()), "kill")
            }
            kind::WAIT => {
                connection.waits = true;
                (0, Vec::new())
            }
            kind::STATS => (kind::STATS_REPLY, self.stats().encode()),
            kind::EXEC => self.exec(connection, body),
            _ => done(Err(Errno::NOSYS), "request"),
        }
    }

    fn exec(&mut self, connection: &mut Connection, body: &[u8]) -> (u8, Vec<u8>) {
        let fds = std::mem::take(&mut connection.fds);
        let Ok(wanted) = ExecRequest::decode(body) else {
            return (kind::FAILED, failure(("exec", b"bad request".to_vec(), Errno::INVAL)).encode());
        };
        match exec::start(&self.req, self.pid, &wanted, &fds, self.inherited_oom) {
            Ok(pid) => {
                connection.exec = Some(pid);
                (kind::OK, Vec::new())
            }
            Err(e) => (kind::FAILED, failure(e).encode()),
        }
    }

    fn stats(&self) -> ShimStats {
        let lost = self.lost();
        ShimStats {
            output: self.pumps.iter().map(|p| p.received).sum(),
            lost_output: lost.0,
            lost_reason: lost.1,
            execs: u32::try_from(self.connections.iter().filter(|c| c.exec.is_some()).count()).unwrap_or(0),
        }
    }

    fn lost(&self) -> (u64, Vec<u8>) {
        let bytes = self.pumps.iter().map(|p| p.lost).sum();
        let why = self.pumps.iter().find_map(|p| p.lost_reason.filter(|_| p.lost > 0));
        (bytes, why.map(|e| std::io::Error::from_raw_os_error(e.0).to_string().into_bytes()).unwrap_or_default())
    }

    /// The task has ended: end the rest of it, write what is known, tell.
    fn finish(mut self, end: &sys::Reaped) {
        let finished_ns = now_ns();
        let leftovers = tree::clear(&self.req, self.pid);
        let mut buffer = std::mem::take(&mut self.buffer);
        for pump in &mut self.pumps {
            let before = pump.received;
            while pump.pump(&mut buffer) && pump.received - before < MAX_DRAIN {}
        }
        let (lost_output, mut lost_reason) = self.lost();
        lost_reason.truncate(MAX_REASON);
        let exit = ExitRecord {
            pid: self.record.pid,
            code: end.code,
            signal: end.signal,
            oom: launch::out_of_memory(&self.req),
            started_ns: self.record.started_ns,
            finished_ns,
            lost_output,
            lost_reason,
            deadline: self.deadline_met,
            user_us: end.user_us,
            system_us: end.system_us,
            max_rss_kib: end.max_rss_kib,
            leftovers,
        };
        tree::remove_cgroups(&self.req);
        let body = exit.encode();
        // Its place in the file was taken at the start, so this needs no room.
        let lock = self.lock.as_raw_fd();
        let written = sys::write_at(lock, &wire::record(&body), wire::EXIT_OFFSET);
        if written.is_ok() {
            // From here on the file may be removed.
            sys::unlock(lock);
        }
        for connection in self.connections.iter().filter(|c| c.waits) {
            let _ = send(&connection.stream, kind::EXITED, &body);
        }
        self.connections.clear();
        let _ = sys::sync_fd(lock);
    }
}

/// Reads one whole frame from a blocking stream.
pub fn read_frame(stream: &mut UnixStream) -> Option<(u8, Vec<u8>)> {
    let mut buf = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        if let Some((frame_kind, body, _)) = wire::take_frame(&buf).ok()? {
            return Some((frame_kind, body.to_vec()));
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(n) => buf.extend_from_slice(chunk.get(..n)?),
        }
    }
}
