//! Messages and records in the format of [`crate::wire`]. Compiled into the
//! library and into the shim program.
//!
//! Paths, arguments and environment are byte strings: they need not be UTF-8.

/// Kinds of frames.
pub mod kind {
    /// Asks a zygote who it is.
    pub const HELLO: u8 = 1;
    /// Answer to [`HELLO`]: [`super::Hello`].
    pub const HELLO_REPLY: u8 = 2;
    /// [`super::StartRequest`] to a zygote.
    pub const START: u8 = 3;
    /// The task runs: [`super::PidRecord`]; the connection stays and gets
    /// [`EXITED`] at the end.
    pub const STARTED: u8 = 4;
    /// The task could not be started: [`super::Failure`].
    pub const FAILED: u8 = 5;
    /// The run is over: [`super::ExitRecord`].
    pub const EXITED: u8 = 6;
    /// The run file belongs to a shim that is gone without an exit
    /// record: the last known [`super::PidRecord`].
    pub const LOST: u8 = 7;
    /// Sends a signal: [`super::SignalRequest`].
    pub const SIGNAL: u8 = 8;
    /// Kills the whole tree. No body.
    pub const KILL: u8 = 9;
    /// Asks to be told of the end. No body; answered by [`EXITED`].
    pub const WAIT: u8 = 10;
    /// Asks for [`super::ShimStats`]. No body.
    pub const STATS: u8 = 11;
    /// Answer to [`STATS`].
    pub const STATS_REPLY: u8 = 12;
    /// Runs a command beside the task: [`super::ExecRequest`] with the
    /// descriptors of its standard streams attached.
    pub const EXEC: u8 = 13;
    /// The command ended: [`super::ExecExit`].
    pub const EXEC_EXITED: u8 = 14;
    /// Done. No body.
    pub const OK: u8 = 15;
}

/// Who answers on a zygote's socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// Process id of the zygote.
    pub pid: u32,
    /// Cgroups the zygote could not leave, one text per hierarchy.
    pub notes: Vec<Vec<u8>>,
}

/// A limit on a resource, see `setrlimit(2)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rlimit {
    /// Which (`RLIMIT_*`).
    pub resource: u32,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

/// Where the output of a task goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPlan {
    /// Directory of the files; never followed if it is a link.
    pub dir: Vec<u8>,
    /// Base name for standard output; files are `<base>.<N>`.
    pub stdout: Vec<u8>,
    /// Base name for standard error.
    pub stderr: Vec<u8>,
    /// How many files to keep of each, at least 1.
    pub max_files: u32,
    /// Size in bytes at which a file is full, at least 1.
    pub max_size: u64,
}

/// One value written into a control file of a cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupWrite {
    /// File name, such as `memory.max`.
    pub file: Vec<u8>,
    /// What is written.
    pub value: Vec<u8>,
    /// The kernel may lack the file or refuse the value: go on.
    pub optional: bool,
}

/// A cgroup the task runs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupPlan {
    /// Absolute directory.
    pub dir: Vec<u8>,
    /// Version 2 (unified) hierarchy.
    pub v2: bool,
    /// The directory is the run's own: made before and removed after it, and
    /// whatever is left in it is killed. Otherwise it has to exist.
    pub own: bool,
    /// The task starts also when it cannot be joined.
    pub optional: bool,
    /// Limits, written in order.
    pub writes: Vec<CgroupWrite>,
}

/// One step of making the task's view of the file system, done in its own
/// mount namespace. Targets are resolved inside the new root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountStep {
    /// Bind mount of a host path (file or directory, with what is below).
    Bind {
        /// Host path.
        source: Vec<u8>,
        /// Path in the new root.
        target: Vec<u8>,
        /// Read-only.
        readonly: bool,
        /// Device nodes in it can be opened.
        devices: bool,
        /// `MS_PRIVATE`, `MS_SLAVE` or `MS_SHARED`, 0 for private.
        propagation: u64,
        /// Skip when the source does not exist.
        optional: bool,
    },
    /// A file system of the kernel: proc, tmpfs, sysfs, devpts, mqueue.
    Fs {
        /// Its type.
        fstype: Vec<u8>,
        /// Path in the new root.
        target: Vec<u8>,
        /// `MS_*` flags.
        flags: u64,
        /// Options.
        data: Vec<u8>,
        /// Go on when the kernel refuses.
        optional: bool,
    },
    /// A symbolic link, unless something is there.
    Symlink {
        /// What it holds.
        content: Vec<u8>,
        /// Path in the new root.
        target: Vec<u8>,
    },
    /// A character device node.
    Node {
        /// Path in the new root.
        target: Vec<u8>,
        /// Permissions.
        mode: u32,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// Hides a path of the new root: a file behind `/dev/null`, a directory
    /// behind an empty read-only one. Skipped if absent.
    Mask {
        /// Path in the new root.
        target: Vec<u8>,
    },
    /// Makes a path of the new root read-only. Skipped if absent.
    Readonly {
        /// Path in the new root.
        target: Vec<u8>,
    },
}

/// Namespaces and file system of an isolated task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Isolation {
    /// Directory that becomes the root.
    pub root: Vec<u8>,
    /// Own process ids.
    pub pid: bool,
    /// Own System V and message queue names.
    pub ipc: bool,
    /// Own host name, set to this when not empty.
    pub hostname: Vec<u8>,
    /// Use `chroot` instead of `pivot_root` (roots on a ramdisk).
    pub no_pivot: bool,
    /// Steps, in order.
    pub steps: Vec<MountStep>,
}

/// When a task is ended by its shim without being told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deadline {
    /// Unix time in nanoseconds.
    pub at_ns: u64,
    /// Signal sent then.
    pub signal: i32,
    /// Time in nanoseconds from that signal to the kill.
    pub grace_ns: u64,
}

/// Everything a shim needs to start a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartRequest {
    /// The key's run file, in the zygote's directory.
    pub run_file: Vec<u8>,
    /// Shown in process lists.
    pub label: Vec<u8>,
    /// Program, an absolute path (inside the new root, if there is one) or a
    /// name looked up in the `PATH` of `env`.
    pub exe: Vec<u8>,
    /// Arguments with the name of the program first.
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value` entries.
    pub env: Vec<Vec<u8>>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Keep the caller's user and groups (an agent without privilege).
    pub keep_user: bool,
    /// Where output goes; none means nowhere.
    pub log: Option<LogPlan>,
    /// Cgroups, joined in order.
    pub cgroups: Vec<CgroupPlan>,
    /// None: the host's file system and namespaces.
    pub isolation: Option<Isolation>,
    /// Network namespace to enter; empty for the host's.
    pub netns: Vec<u8>,
    /// Limits.
    pub rlimits: Vec<Rlimit>,
    /// Set `no_new_privs`.
    pub no_new_privs: bool,
    /// Value for `oom_score_adj`.
    pub oom_score_adj: i32,
    /// Bounding set of capabilities, one bit each; none leaves all.
    pub cap_bounding: Option<u64>,
    /// Capabilities a task of another user than root is given.
    pub cap_ambient: u64,
    /// Ends the task by itself.
    pub deadline: Option<Deadline>,
}

/// What is known of a run from the moment it is begun, at the beginning of its
/// run file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PidRecord {
    /// Process id of the task; 0 while it is being started.
    pub pid: u32,
    /// Its start time in clock ticks since boot (`/proc/PID/stat`).
    pub start_ticks: u64,
    /// Process id of the shim.
    pub shim_pid: u32,
    /// Start time of the shim.
    pub shim_start_ticks: u64,
    /// Which boot of the machine.
    pub boot_id: Vec<u8>,
    /// Unix time of the start in nanoseconds.
    pub started_ns: u64,
    /// Cgroups of the run's own.
    pub cgroups: Vec<Vec<u8>>,
    /// The start was asked for before and this is that one.
    pub existing: bool,
}

/// How a run ended, in the run file at [`crate::wire::EXIT_OFFSET`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitRecord {
    /// Process id the task had.
    pub pid: u32,
    /// Exit code; 0 when a signal ended it.
    pub code: i32,
    /// Signal that ended it, or 0.
    pub signal: i32,
    /// The kernel killed something of it for want of memory.
    pub oom: bool,
    /// Unix time of the start in nanoseconds.
    pub started_ns: u64,
    /// Unix time of the end in nanoseconds.
    pub finished_ns: u64,
    /// Bytes of output that could not be written.
    pub lost_output: u64,
    /// Why they could not, the first time.
    pub lost_reason: Vec<u8>,
    /// Ended by its deadline.
    pub deadline: bool,
    /// Processor time in user mode, microseconds, descendants included.
    pub user_us: u64,
    /// Processor time in kernel mode, microseconds.
    pub system_us: u64,
    /// Largest resident size, KiB.
    pub max_rss_kib: u64,
    /// Processes left behind by the task that were killed.
    pub leftovers: u32,
}

/// Why a task could not be started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// The step that failed, such as `exec`.
    pub stage: Vec<u8>,
    /// What it was about, such as a path.
    pub detail: Vec<u8>,
    /// Error number of the system, or 0.
    pub errno: i32,
}

/// A signal to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SignalRequest {
    /// Its number; 0 only asks whether the task lives.
    pub signal: i32,
    /// To the whole process group instead of the task's first process.
    pub group: bool,
}

/// Figures of a shim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShimStats {
    /// Bytes of output received.
    pub output: u64,
    /// Bytes of output that could not be written.
    pub lost_output: u64,
    /// Why they could not, the first time.
    pub lost_reason: Vec<u8>,
    /// Commands running beside the task.
    pub execs: u32,
}

/// A command to run beside the task, as its user, in its namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// Arguments with the program first.
    pub argv: Vec<Vec<u8>>,
    /// The one descriptor sent is a terminal; otherwise three are sent.
    pub tty: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExecExit {
    /// Exit code, 128 plus the number when a signal ended it.
    pub code: i32,
}
