//! The system calls the shim program uses, each behind a function that is safe
//! to call. With `spawn`, the only file of the program with `unsafe`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An error number of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

pub type Sys<T> = Result<T, Errno>;

impl Errno {
    pub const NOENT: Errno = Errno(2);
    pub const INTR: Errno = Errno(4);
    pub const BADF: Errno = Errno(9);
    pub const AGAIN: Errno = Errno(11);
    pub const ACCES: Errno = Errno(13);
    pub const EXIST: Errno = Errno(17);
    pub const NOTDIR: Errno = Errno(20);
    pub const INVAL: Errno = Errno(22);
    pub const NOSYS: Errno = Errno(38);

    pub fn last() -> Errno {
        Errno::from(std::io::Error::last_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(e: std::io::Error) -> Errno {
        Errno(e.raw_os_error().unwrap_or(5))
    }
}

pub const AT_FDCWD: RawFd = -100;
pub const O_RDONLY: c_int = 0;
pub const O_WRONLY: c_int = 1;
pub const O_RDWR: c_int = 2;
pub const O_CREAT: c_int = 0o100;
pub const O_EXCL: c_int = 0o200;
pub const O_APPEND: c_int = 0o2000;
pub const O_NONBLOCK: c_int = 0o4000;
pub const O_CLOEXEC: c_int = 0o2_000_000;
pub const O_PATH: c_int = 0o10_000_000;
#[cfg(target_arch = "x86_64")]
pub const O_DIRECTORY: c_int = 0o200_000;
#[cfg(target_arch = "x86_64")]
pub const O_NOFOLLOW: c_int = 0o400_000;
#[cfg(target_arch = "aarch64")]
pub const O_DIRECTORY: c_int = 0o40_000;
#[cfg(target_arch = "aarch64")]
pub const O_NOFOLLOW: c_int = 0o100_000;

pub const SIGKILL: c_int = 9;
pub const SIGCHLD: c_int = 17;
pub const SIGPIPE: c_int = 13;
/// Highest signal number.
pub const LAST_SIGNAL: c_int = 64;

pub const POLLIN: i16 = 1;

pub const MS_RDONLY: c_ulong = 1;
pub const MS_REMOUNT: c_ulong = 32;
pub const MS_BIND: c_ulong = 4096;
pub const MS_MOVE: c_ulong = 8192;
pub const MS_REC: c_ulong = 16384;
pub const MS_SLAVE: c_ulong = 1 << 19;

pub const CLONE_NEWNS: u64 = 0x0002_0000;
pub const CLONE_NEWUTS: u64 = 0x0400_0000;
pub const CLONE_NEWIPC: u64 = 0x0800_0000;
pub const CLONE_NEWPID: u64 = 0x2000_0000;
pub const CLONE_NEWNET: u64 = 0x4000_0000;

const SYS_CLOSE_RANGE: c_long = 436;
const SYS_OPENAT2: c_long = 437;
const SYS_MOUNT_SETATTR: c_long = 442;
#[cfg(target_arch = "x86_64")]
const SYS_PIVOT_ROOT: c_long = 155;
#[cfg(target_arch = "aarch64")]
const SYS_PIVOT_ROOT: c_long = 41;
#[cfg(target_arch = "x86_64")]
const SYS_RT_SIGACTION: c_long = 13;
#[cfg(target_arch = "aarch64")]
const SYS_RT_SIGACTION: c_long = 134;
#[cfg(target_arch = "x86_64")]
const SYS_KEYCTL: c_long = 250;
#[cfg(target_arch = "aarch64")]
const SYS_KEYCTL: c_long = 219;
#[cfg(target_arch = "x86_64")]
const SYS_IOPRIO_SET: c_long = 251;
#[cfg(target_arch = "aarch64")]
const SYS_IOPRIO_SET: c_long = 30;
#[cfg(target_arch = "x86_64")]
const SYS_SET_MEMPOLICY: c_long = 238;
#[cfg(target_arch = "aarch64")]
const SYS_SET_MEMPOLICY: c_long = 237;

/// `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PollFd {
    pub fd: RawFd,
    pub events: i16,
    pub revents: i16,
}

#[repr(C)]
struct SigSet([u64; 16]);

#[repr(C)]
struct Timeval {
    sec: i64,
    usec: i64,
}

/// `struct rusage`, of which three fields are of interest.
#[repr(C)]
struct Rusage {
    user: Timeval,
    system: Timeval,
    max_rss: c_long,
    rest: [c_long; 13],
}

#[repr(C)]
struct IoVec {
    base: *mut c_void,
    len: usize,
}

#[repr(C)]
struct MsgHdr {
    name: *mut c_void,
    name_len: c_uint,
    iov: *mut IoVec,
    iov_len: usize,
    control: *mut c_void,
    control_len: usize,
    flags: c_int,
}

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

unsafe extern "C" {
    fn openat(dir: c_int, path: *const c_char, flags: c_int, ...) -> c_int;
    fn mkdirat(dir: c_int, path: *const c_char, mode: c_uint) -> c_int;
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn symlinkat(content: *const c_char, dir: c_int, path: *const c_char) -> c_int;
    fn mknodat(dir: c_int, path: *const c_char, mode: c_uint, dev: u64) -> c_int;
    fn fchmodat(dir: c_int, path: *const c_char, mode: c_uint, flags: c_int) -> c_int;
    fn read(fd: c_int, buf: *mut c_void, len: usize) -> isize;
    fn write(fd: c_int, buf: *const c_void, len: usize) -> isize;
    fn pwrite(fd: c_int, buf: *const c_void, len: usize, offset: i64) -> isize;
    fn ftruncate(fd: c_int, len: i64) -> c_int;
    fn fsync(fd: c_int) -> c_int;
    fn flock(fd: c_int, op: c_int) -> c_int;
    fn pipe2(fds: *mut c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, cmd: c_int, ...) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn recvmsg(fd: c_int, msg: *mut MsgHdr, flags: c_int) -> isize;
    fn poll(fds: *mut PollFd, n: c_ulong, timeout: c_int) -> c_int;
    fn sigemptyset(set: *mut SigSet) -> c_int;
    fn sigaddset(set: *mut SigSet, signal: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SigSet, old: *mut SigSet) -> c_int;
    fn signalfd(fd: c_int, set: *const SigSet, flags: c_int) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn wait4(pid: c_int, status: *mut c_int, options: c_int, usage: *mut Rusage) -> c_int;
    fn prctl(op: c_int, ...) -> c_int;
    fn fork() -> c_int;
    fn setsid() -> c_int;
    fn getppid() -> c_int;
    fn umask(mask: c_uint) -> c_uint;
    fn _exit(code: c_int) -> !;
    fn syscall(number: c_long, ...) -> c_long;
    fn mount(
        source: *const c_char,
        target: *const c_char,
        fstype: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn umount2(target: *const c_char, flags: c_int) -> c_int;
    fn chroot(path: *const c_char) -> c_int;
    fn chdir(path: *const c_char) -> c_int;
    fn fchdir(fd: c_int) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn sethostname(name: *const c_char, len: usize) -> c_int;
    fn setrlimit(resource: c_uint, limit: *const [u64; 2]) -> c_int;
    fn prlimit(pid: c_int, resource: c_uint, new: *const [u64; 2], old: *mut [u64; 2]) -> c_int;
    fn setpriority(which: c_int, who: c_uint, nice: c_int) -> c_int;
    fn sched_setscheduler(pid: c_int, policy: c_int, priority: *const c_int) -> c_int;
    fn sched_setaffinity(pid: c_int, len: usize, set: *const u64) -> c_int;
    fn setgroups(n: usize, groups: *const u32) -> c_int;
    fn setresuid(real: u32, effective: u32, saved: u32) -> c_int;
    fn setresgid(real: u32, effective: u32, saved: u32) -> c_int;
    fn capset(header: *mut CapHeader, data: *const CapData) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

/// A C string; text with a zero byte inside is refused.
pub fn cstr(bytes: &[u8]) -> Sys<CString> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}

fn check(result: c_int) -> Sys<c_int> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

fn check_len(result: isize) -> Sys<usize> {
    usize::try_from(result).map_err(|_| Errno::last())
}

fn owned(result: c_int) -> Sys<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the system has just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn open_at(dir: RawFd, path: &[u8], flags: c_int, mode: c_uint) -> Sys<OwnedFd> {
    let path = cstr(path)?;
    // SAFETY: `path` is a C string that outlives the call.
    owned(unsafe { openat(dir, path.as_ptr(), flags | O_CLOEXEC, mode) })
}

/// Opens below `dir` as if it were the root directory: links cannot lead out.
pub fn open_in_root(dir: RawFd, path: &[u8], flags: c_int) -> Sys<OwnedFd> {
    const RESOLVE_NO_MAGICLINKS: u64 = 2;
    const RESOLVE_IN_ROOT: u64 = 16;
    let path = cstr(path)?;
    let how = OpenHow {
        flags: u64::from((flags | O_CLOEXEC).cast_unsigned()),
        mode: 0,
        resolve: RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    // SAFETY: `path` and `how` outlive the call; the size is that of `how`.
    let fd = unsafe { syscall(SYS_OPENAT2, dir, path.as_ptr(), &raw const how, size_of::<OpenHow>()) };
    owned(c_int::try_from(fd).unwrap_or(-1))
}

pub fn mkdir_at(dir: RawFd, path: &[u8], mode: c_uint) -> Sys<()> {
    let path = cstr(path)?;
    // SAFETY: `path` is a C string that outlives the call.
    check(unsafe { mkdirat(dir, path.as_ptr(), mode) }).map(drop)
}

pub fn unlink_at(dir: RawFd, path: &[u8]) -> Sys<()> {
    let path = cstr(path)?;
    // SAFETY: `path` is a C string that outlives the call.
    check(unsafe { unlinkat(dir, path.as_ptr(), 0) }).map(drop)
}

pub fn rmdir(path: &[u8]) -> Sys<()> {
    const AT_REMOVEDIR: c_int = 0x200;
    let path = cstr(path)?;
    // SAFETY: `path` is a C string that outlives the call.
    check(unsafe { unlinkat(AT_FDCWD, path.as_ptr(), AT_REMOVEDIR) }).map(drop)
}

pub fn symlink_at(content: &[u8], dir: RawFd, path: &[u8]) -> Sys<()> {
    let (content, path) = (cstr(content)?, cstr(path)?);
    // SAFETY: both are C strings that outlive the call.
    check(unsafe { symlinkat(content.as_ptr(), dir, path.as_ptr()) }).map(drop)
}

/// Makes a character device, or an empty file when `device` is none.
pub fn mknod_at(dir: RawFd, path: &[u8], mode: u32, device: Option<(u32, u32)>) -> Sys<()> {
    const S_IFREG: u32 = 0o100_000;
    const S_IFCHR: u32 = 0o020_000;
    let path = cstr(path)?;
    let (kind, dev) = match device {
        None => (S_IFREG, 0),
        Some((major, minor)) => {
            let (major, minor) = (u64::from(major), u64::from(minor));
            (S_IFCHR, (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12))
        }
    };
    // SAFETY: `path` is a C string that outlives the calls.
    check(unsafe { mknodat(dir, path.as_ptr(), kind | mode, dev) })?;
    // SAFETY: as above; sets the mode whatever the file mode mask is.
    check(unsafe { fchmodat(dir, path.as_ptr(), mode, 0) }).map(drop)
}

pub fn read_fd(fd: RawFd, buf: &mut [u8]) -> Sys<usize> {
    // SAFETY: the buffer is writable for its length.
    check_len(unsafe { read(fd, buf.as_mut_ptr().cast(), buf.len()) })
}

pub fn write_fd(fd: RawFd, buf: &[u8]) -> Sys<usize> {
    // SAFETY: the buffer is readable for its length.
    check_len(unsafe { write(fd, buf.as_ptr().cast(), buf.len()) })
}

/// Reads the beginning of a small file of `/proc` or a cgroup in one call.
pub fn read_small(path: &[u8]) -> Sys<Vec<u8>> {
    const LONGEST: usize = 4096;
    let file = open_at(AT_FDCWD, path, O_RDONLY, 0)?;
    let mut buf = vec![0; LONGEST];
    let n = read_fd(file.as_raw_fd(), &mut buf)?;
    buf.truncate(n);
    Ok(buf)
}

/// Writes all of `buf`, waiting where the descriptor makes it wait.
pub fn write_all(fd: RawFd, mut buf: &[u8]) -> Sys<()> {
    while !buf.is_empty() {
        match write_fd(fd, buf) {
            Ok(n) => buf = buf.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

pub fn write_at(fd: RawFd, buf: &[u8], offset: usize) -> Sys<()> {
    let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
    // SAFETY: the buffer is readable for its length.
    let n = check_len(unsafe { pwrite(fd, buf.as_ptr().cast(), buf.len(), offset) })?;
    // A short write of a record this small means the disk is full.
    if n == buf.len() { Ok(()) } else { Err(Errno(28)) }
}

pub fn empty_file(fd: RawFd) -> Sys<()> {
    // SAFETY: plain call.
    check(unsafe { ftruncate(fd, 0) }).map(drop)
}

pub fn sync_fd(fd: RawFd) -> Sys<()> {
    // SAFETY: plain call.
    check(unsafe { fsync(fd) }).map(drop)
}

/// Gives up the lock, also if copies of the descriptor are left.
pub fn unlock(fd: RawFd) {
    const LOCK_UN: c_int = 8;
    // SAFETY: plain call.
    unsafe { flock(fd, LOCK_UN) };
}

/// Takes the exclusive lock on an open file without waiting.
pub fn try_lock(fd: RawFd) -> Sys<()> {
    const LOCK_EX_NB: c_int = 2 | 4;
    // SAFETY: plain call.
    check(unsafe { flock(fd, LOCK_EX_NB) }).map(drop)
}

/// A pipe: the end to read from (not blocking when `quick`), the end to write to.
pub fn pipe(quick: bool) -> Sys<(OwnedFd, OwnedFd)> {
    const F_SETFL: c_int = 4;
    let mut fds = [-1; 2];
    // SAFETY: `fds` has room for two descriptors.
    check(unsafe { pipe2(fds.as_mut_ptr(), O_CLOEXEC) })?;
    let (reader, writer) = (owned(fds[0])?, owned(fds[1])?);
    if quick {
        // SAFETY: plain call; only the reader's open file is changed.
        check(unsafe { fcntl(reader.as_raw_fd(), F_SETFL, O_NONBLOCK) })?;
    }
    Ok((reader, writer))
}

/// Makes `to` a copy of `from`, open across exec also when they are the same.
pub fn install(from: RawFd, to: RawFd) -> Sys<()> {
    const F_SETFD: c_int = 2;
    if from == to {
        // SAFETY: plain call.
        return check(unsafe { fcntl(to, F_SETFD, 0) }).map(drop);
    }
    // SAFETY: plain call; `to` is a standard stream nobody owns as a value.
    check(unsafe { dup2(from, to) }).map(drop)
}

pub fn set_backlog(fd: RawFd, backlog: c_int) -> Sys<()> {
    // SAFETY: plain call.
    check(unsafe { listen(fd, backlog) }).map(drop)
}

/// Reads from a socket, with descriptors that were sent along (at most three).
pub fn receive(fd: RawFd, buf: &mut [u8]) -> Sys<(usize, Vec<OwnedFd>)> {
    const MSG_CMSG_CLOEXEC: c_int = 0x4000_0000;
    const HEADER: usize = 16;
    let mut control = [0u64; 5]; // Header and room for six descriptors.
    let mut iov = IoVec { base: buf.as_mut_ptr().cast(), len: buf.len() };
    let mut msg = MsgHdr {
        name: std::ptr::null_mut(),
        name_len: 0,
        iov: &raw mut iov,
        iov_len: 1,
        control: control.as_mut_ptr().cast(),
        control_len: size_of_val(&control),
        flags: 0,
    };
    // SAFETY: every pointer in `msg` is to a live, writable buffer of the stated length.
    let n = check_len(unsafe { recvmsg(fd, &raw mut msg, MSG_CMSG_CLOEXEC) })?;
    let mut fds = Vec::new();
    // A control message: length (8 bytes), level, type (4 each), descriptors.
    if msg.control_len >= HEADER {
        let len = usize::try_from(control[0]).unwrap_or(0).min(msg.control_len);
        let kind = control[1]; // Level 1 (SOL_SOCKET) and type 1 (SCM_RIGHTS).
        if kind == (1 | (1 << 32)) {
            let count = len.saturating_sub(HEADER) / 4;
            for word in control[2..].iter().flat_map(|w| w.to_le_bytes().as_chunks::<4>().0.to_vec()).take(count) {
                fds.push(owned(c_int::from_le_bytes(word))?);
            }
        }
    }
    Ok((n, fds))
}

/// Waits for one of `fds`, at most `timeout_ms` (negative: for ever).
pub fn poll_fds(fds: &mut [PollFd], timeout_ms: c_int) -> Sys<()> {
    // SAFETY: the slice is writable for its length.
    check(unsafe { poll(fds.as_mut_ptr(), fds.len() as c_ulong, timeout_ms) }).map(drop)
}

fn signal_set(signals: &[c_int]) -> SigSet {
    let mut set = SigSet([0; 16]);
    // SAFETY: `set` is as large as the C library's type.
    unsafe { sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: as above; a bad number only returns an error.
        unsafe { sigaddset(&raw mut set, *signal) };
    }
    set
}

/// Blocks exactly these signals.
pub fn block_only(signals: &[c_int]) {
    const SIG_SETMASK: c_int = 2;
    let set = signal_set(signals);
    // SAFETY: `set` is valid and nothing is written to a null pointer.
    unsafe { sigprocmask(SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// A descriptor that is readable while a child has something to report.
pub fn child_signal_fd() -> Sys<OwnedFd> {
    let set = signal_set(&[SIGCHLD]);
    // SAFETY: `set` is valid.
    owned(unsafe { signalfd(-1, &raw const set, O_CLOEXEC | O_NONBLOCK) })
}

/// The kernel is asked directly: the C library will not touch the two signals
/// it uses itself, which its `posix_spawn` leaves ignored in the zygote.
pub fn default_action(sig: c_int) {
    let all_zero = [0u64; 4]; // `struct kernel_sigaction`: SIG_DFL, no flags, empty mask.
    // SAFETY: the default action runs no code of ours; nothing is written back.
    unsafe { syscall(SYS_RT_SIGACTION, sig, all_zero.as_ptr(), std::ptr::null_mut::<u64>(), 8usize) };
}

pub fn ignore(sig: c_int) {
    // SAFETY: ignoring runs no code of ours.
    unsafe { signal(sig, 1) };
}

/// Sends a signal; a negative `pid` means the process group.
pub fn send_signal(pid: i32, sig: c_int) -> Sys<()> {
    // Never "everything I may signal" nor "my own group".
    if pid == 0 || pid == -1 {
        return Err(Errno::INVAL);
    }
    // SAFETY: plain call.
    check(unsafe { kill(pid, sig) }).map(drop)
}

/// What a wait brought.
pub struct Reaped {
    pub pid: i32,
    pub code: i32,
    pub signal: i32,
    pub user_us: u64,
    pub system_us: u64,
    pub max_rss_kib: u64,
}

/// Reaps a child (any, with -1). None: there are children, none has ended.
/// An error of `ECHILD` (10): there are none.
pub fn reap(pid: i32, block: bool) -> Sys<Option<Reaped>> {
    let mut status = 0;
    let zero = || Timeval { sec: 0, usec: 0 };
    let mut usage = Rusage { user: zero(), system: zero(), max_rss: 0, rest: [0; 13] };
    // SAFETY: both out pointers are valid.
    let got = check(unsafe { wait4(pid, &raw mut status, c_int::from(!block), &raw mut usage) })?;
    if got == 0 {
        return Ok(None);
    }
    let micros =
        |t: &Timeval| u64::try_from(t.sec).unwrap_or(0).saturating_mul(1_000_000) + u64::try_from(t.usec).unwrap_or(0);
    let signal = status & 0x7f;
    Ok(Some(Reaped {
        pid: got,
        code: if signal == 0 { (status >> 8) & 0xff } else { 0 },
        signal,
        user_us: micros(&usage.user),
        system_us: micros(&usage.system),
        max_rss_kib: u64::try_from(usage.max_rss).unwrap_or(0),
    }))
}

fn process_control(op: c_int, a: c_ulong, b: c_ulong) -> Sys<()> {
    let zero: c_ulong = 0;
    // SAFETY: only operations with number arguments are passed here.
    check(unsafe { prctl(op, a, b, zero, zero) }).map(drop)
}

/// The name in process lists, at most 15 bytes.
pub fn set_name(name: &CStr) {
    const PR_SET_NAME: c_int = 15;
    // SAFETY: the name is a C string; the kernel copies at most 16 bytes of it.
    unsafe { prctl(PR_SET_NAME, name.as_ptr()) };
}

/// Orphaned descendants become children of this process.
pub fn become_subreaper() -> Sys<()> {
    process_control(36, 1, 0)
}

/// This process is killed when its parent ends.
pub fn die_with_parent() -> Sys<()> {
    process_control(1, 9, 0)
}

pub fn forbid_new_privileges() -> Sys<()> {
    process_control(38, 1, 0)
}

pub fn drop_from_bounding_set(capability: u32) -> Sys<()> {
    process_control(24, c_ulong::from(capability), 0)
}

/// Keeps permitted capabilities when the user changes.
pub fn keep_capabilities() -> Sys<()> {
    process_control(8, 1, 0)
}

/// Makes `mask` the capabilities, also after exec as another user than root.
pub fn grant_ambient(mask: u64) -> Sys<()> {
    const PR_CAP_AMBIENT: c_int = 47;
    const RAISE: c_ulong = 2;
    let mut header = CapHeader { version: 0x2008_0522, pid: 0 };
    let half = |bits: u64| {
        let bits = u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
        CapData { effective: bits, permitted: bits, inheritable: bits }
    };
    let data = [half(mask), half(mask >> 32)];
    // SAFETY: version 3 of the interface takes two data elements.
    check(unsafe { capset(&raw mut header, data.as_ptr()) })?;
    for bit in (0..64).filter(|bit| mask & (1 << bit) != 0) {
        process_control(PR_CAP_AMBIENT, RAISE, bit)?;
    }
    Ok(())
}

/// Zero in the child.
pub fn fork_process() -> Sys<i32> {
    // SAFETY: the program has one thread.
    check(unsafe { fork() })
}

pub fn new_session() -> Sys<()> {
    // SAFETY: plain call.
    check(unsafe { setsid() }).map(drop)
}

pub fn parent_pid() -> i32 {
    // SAFETY: plain call.
    unsafe { getppid() }
}

pub fn set_umask(mask: u32) {
    // SAFETY: plain call.
    unsafe { umask(mask) };
}

pub fn exit(code: i32) -> ! {
    // SAFETY: ends the process without running exit handlers.
    unsafe { _exit(code) }
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: c_uint) {
    // SAFETY: callers pass only descriptors that nothing will use again.
    let done = unsafe { syscall(SYS_CLOSE_RANGE, first, c_uint::MAX, 0 as c_uint) };
    if done < 0 {
        // Before Linux 5.9.
        unsafe extern "C" {
            fn close(fd: c_int) -> c_int;
        }
        for fd in first..65_536 {
            // SAFETY: as above.
            unsafe { close(fd.cast_signed()) };
        }
    }
}

fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(std::ptr::null(), |t| t.as_ptr())
}

pub fn mount_fs(source: &[u8], target: &[u8], fstype: &[u8], flags: c_ulong, data: &[u8]) -> Sys<()> {
    let optional = |bytes: &[u8]| if bytes.is_empty() { Ok(None) } else { cstr(bytes).map(Some) };
    let (source, fstype, data) = (optional(source)?, optional(fstype)?, optional(data)?);
    let target = cstr(target)?;
    // SAFETY: each pointer is null or a C string that outlives the call.
    check(unsafe {
        mount(pointer(source.as_ref()), target.as_ptr(), pointer(fstype.as_ref()), flags, pointer(data.as_ref()).cast())
    })
    .map(drop)
}

/// Attributes of mounts; the same bits as the flags of `mount`.
pub const ATTR_RDONLY: u64 = 1;
pub const ATTR_NODEV: u64 = 4;

/// Sets attributes on the mount whose root is open as `fd`, and on all below.
pub fn set_mount_attributes(fd: RawFd, attributes: u64) -> Sys<()> {
    const AT_EMPTY_PATH_RECURSIVE: c_uint = 0x1000 | 0x8000;
    let attr = MountAttr { set: attributes, clear: 0, propagation: 0, userns: 0 };
    // SAFETY: the path is an empty C string; `attr` has the stated size.
    let done = unsafe {
        syscall(SYS_MOUNT_SETATTR, fd, c"".as_ptr(), AT_EMPTY_PATH_RECURSIVE, &raw const attr, size_of::<MountAttr>())
    };
    check(c_int::try_from(done).unwrap_or(-1)).map(drop)
}

/// Makes the working directory the root and detaches the old one.
pub fn pivot_here() -> Sys<()> {
    const MNT_DETACH: c_int = 2;
    // SAFETY: the paths are C strings.
    let done = unsafe { syscall(SYS_PIVOT_ROOT, c".".as_ptr(), c".".as_ptr()) };
    check(c_int::try_from(done).unwrap_or(-1))?;
    // SAFETY: as above.
    check(unsafe { umount2(c".".as_ptr(), MNT_DETACH) })?;
    change_dir(b"/")
}

pub fn chroot_here() -> Sys<()> {
    // SAFETY: the path is a C string.
    check(unsafe { chroot(c".".as_ptr()) }).map(drop)
}

pub fn change_dir(path: &[u8]) -> Sys<()> {
    let path = cstr(path)?;
    // SAFETY: `path` is a C string that outlives the call.
    check(unsafe { chdir(path.as_ptr()) }).map(drop)
}

pub fn change_dir_to(fd: RawFd) -> Sys<()> {
    // SAFETY: plain call.
    check(unsafe { fchdir(fd) }).map(drop)
}

pub fn enter_namespace(fd: RawFd, kind: u64) -> Sys<()> {
    // SAFETY: plain call.
    check(unsafe { setns(fd, c_int::try_from(kind).unwrap_or(0)) }).map(drop)
}

/// Own session keyring, so that the agent's keys are out of reach.
pub fn own_keyring() {
    const JOIN_SESSION_KEYRING: c_long = 1;
    // SAFETY: a null name asks for an anonymous keyring. Kernels without
    // keyrings answer an error, and then there is nothing to hide.
    unsafe { syscall(SYS_KEYCTL, JOIN_SESSION_KEYRING, std::ptr::null::<c_char>()) };
}

pub fn set_host_name(name: &[u8]) -> Sys<()> {
    // SAFETY: the buffer is readable for its length.
    check(unsafe { sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

pub fn set_limit(resource: u32, soft: u64, hard: u64) -> Sys<()> {
    let limit = [soft, hard];
    // SAFETY: `limit` has the layout of `struct rlimit`.
    check(unsafe { setrlimit(resource, &raw const limit) }).map(drop)
}

/// The limits of another process: soft and hard.
pub fn limit_of(pid: i32, resource: u32) -> Sys<(u64, u64)> {
    let mut limit = [0; 2];
    // SAFETY: `limit` has the layout of `struct rlimit`; nothing is set.
    check(unsafe { prlimit(pid, resource, std::ptr::null(), &raw mut limit) })?;
    Ok((limit[0], limit[1]))
}

/// Gives this process the ordinary scheduling of processors, memory nodes and
/// disks. What it may not change stays.
pub fn schedule_as_usual() {
    const IOPRIO_WHO_PROCESS: c_long = 1;
    const PR_SET_TIMERSLACK: c_int = 29;
    const TIMER_SLACK_NS: c_ulong = 50_000;
    let (priority, every) = (0, [u64::MAX; 16]);
    // SAFETY: `priority` has the layout of `struct sched_param`, `every` is as
    // long as is said, and the other calls take numbers only.
    unsafe {
        sched_setscheduler(0, 0, &raw const priority); // SCHED_OTHER
        setpriority(0, 0, 0); // PRIO_PROCESS, this one
        sched_setaffinity(0, size_of_val(&every), every.as_ptr());
        syscall(SYS_IOPRIO_SET, IOPRIO_WHO_PROCESS, 0 as c_long, 0 as c_long);
        syscall(SYS_SET_MEMPOLICY, 0 as c_long, std::ptr::null::<u64>(), 0 as c_long);
        prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    }
}

/// Becomes this user for good.
pub fn set_user(uid: u32, gid: u32, groups: &[u32]) -> Sys<()> {
    // SAFETY: the slice is readable for its length.
    check(unsafe { setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: plain call.
    check(unsafe { setresgid(gid, gid, gid) })?;
    // SAFETY: plain call.
    check(unsafe { setresuid(uid, uid, uid) }).map(drop)
}

/// Makes the terminal `fd` the controlling one of this session.
pub fn take_terminal(fd: RawFd) -> Sys<()> {
    const TIOCSCTTY: c_ulong = 0x540e;
    // SAFETY: the request takes a number.
    check(unsafe { ioctl(fd, TIOCSCTTY, 0 as c_int) }).map(drop)
}

pub fn close_on_exec(fd: RawFd) -> Sys<()> {
    const F_SETFD: c_int = 2;
    const FD_CLOEXEC: c_int = 1;
    // SAFETY: plain call.
    check(unsafe { fcntl(fd, F_SETFD, FD_CLOEXEC) }).map(drop)
}
