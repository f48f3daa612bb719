//! How each of [`crate::messages`] is put into bytes. A tag once used keeps its
//! meaning; new fields take new tags.

use crate::messages::{
    CgroupPlan, CgroupWrite, Deadline, ExecExit, ExecRequest, ExitRecord, Failure, Hello, Isolation, LogPlan,
    MountStep, PidRecord, Rlimit, ShimStats, SignalRequest, StartRequest,
};
use crate::wire::{Dec, Enc, WireError, num, num32, signed32};

/// Something with a byte form.
pub trait Message: Default {
    /// Adds the fields.
    fn put(&self, e: &mut Enc);
    /// Takes one field; unknown tags are ignored.
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError>;

    /// The byte form.
    fn encode(&self) -> Vec<u8> {
        let mut e = Enc::new();
        self.put(&mut e);
        e.done()
    }
    /// Reads the byte form.
    fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut out = Self::default();
        let mut dec = Dec::new(body);
        while let Some((tag, value)) = dec.field()? {
            out.set(tag, value)?;
        }
        Ok(out)
    }
}

impl Message for Hello {
    fn put(&self, e: &mut Enc) {
        e.num(1, u64::from(self.pid)).list(2, &self.notes);
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.pid = num32(tag, value)?,
            2 => self.notes.push(value.to_vec()),
            _ => {}
        }
        Ok(())
    }
}

impl Message for Rlimit {
    fn put(&self, e: &mut Enc) {
        e.num(1, u64::from(self.resource)).num(2, self.soft).num(3, self.hard);
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.resource = num32(tag, value)?,
            2 => self.soft = num(tag, value)?,
            3 => self.hard = num(tag, value)?,
            _ => {}
        }
        Ok(())
    }
}

impl Message for LogPlan {
    fn put(&self, e: &mut Enc) {
        e.bytes(1, &self.dir).bytes(2, &self.stdout).bytes(3, &self.stderr);
        e.num(4, u64::from(self.max_files)).num(5, self.max_size);
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.dir = value.to_vec(),
            2 => self.stdout = value.to_vec(),
            3 => self.stderr = value.to_vec(),
            4 => self.max_files = num32(tag, value)?,
            5 => self.max_size = num(tag, value)?,
            _ => {}
        }
        Ok(())
    }
}

impl Message for CgroupWrite {
    fn put(&self, e: &mut Enc) {
        e.bytes(1, &self.file).bytes(2, &self.value).flag(3, self.optional);
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.file = value.to_vec(),
            2 => self.value = value.to_vec(),
            3 => self.optional = num(tag, value)? != 0,
            _ => {}
        }
        Ok(())
    }
}

impl Message for CgroupPlan {
    fn put(&self, e: &mut Enc) {
        e.bytes(1, &self.dir).flag(2, self.v2).flag(3, self.own).flag(4, self.optional);
        for write in &self.writes {
            e.bytes(5, &write.encode());
        }
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.dir = value.to_vec(),
            2 => self.v2 = num(tag, value)? != 0,
            3 => self.own = num(tag, value)? != 0,
            4 => self.optional = num(tag, value)? != 0,
            5 => self.writes.push(CgroupWrite::decode(value)?),
            _ => {}
        }
        Ok(())
    }
}

/// Tags of [`MountStep`]: the kind is field 1, the others are shared.
fn put_step(step: &MountStep) -> Vec<u8> {
    let mut e = Enc::new();
    match step {
        MountStep::Bind { source, target, readonly, devices, propagation, optional } => {
            e.num(1, 1).bytes(2, target).bytes(3, source);
            e.flag(4, *readonly).num(5, *propagation).flag(6, *optional).flag(11, *devices);
        }
        MountStep::Fs { fstype, target, flags, data, optional } => {
            e.num(1, 2).bytes(2, target).bytes(3, fstype);
            e.num(5, *flags).bytes(7, data).flag(6, *optional);
        }
        MountStep::Symlink { content, target } => {
            e.num(1, 3).bytes(2, target).bytes(3, content);
        }
        MountStep::Node { target, mode, major, minor } => {
            e.num(1, 4).bytes(2, target);
            e.num(8, u64::from(*mode)).num(9, u64::from(*major)).num(10, u64::from(*minor));
        }
        MountStep::Mask { target } => {
            e.num(1, 5).bytes(2, target);
        }
        MountStep::Readonly { target } => {
            e.num(1, 6).bytes(2, target);
        }
    }
    e.done()
}

/// Fields of a step before its kind is known.
#[derive(Default)]
struct StepFields {
    kind: u64,
    target: Vec<u8>,
    text: Vec<u8>,
    readonly: bool,
    flags: u64,
    optional: bool,
    data: Vec<u8>,
    numbers: [u32; 3],
    devices: bool,
}

fn take_step(body: &[u8]) -> Result<MountStep, WireError> {
    let mut f = StepFields::default();
    let mut dec = Dec::new(body);
    while let Some((tag, value)) = dec.field()? {
        match tag {
            1 => f.kind = num(tag, value)?,
            2 => f.target = value.to_vec(),
            3 => f.text = value.to_vec(),
            4 => f.readonly = num(tag, value)? != 0,
            5 => f.flags = num(tag, value)?,
            6 => f.optional = num(tag, value)? != 0,
            7 => f.data = value.to_vec(),
            8 => f.numbers[0] = num32(tag, value)?,
            9 => f.numbers[1] = num32(tag, value)?,
            10 => f.numbers[2] = num32(tag, value)?,
            11 => f.devices = num(tag, value)? != 0,
            _ => {}
        }
    }
    let StepFields { kind, target, text, readonly, flags, optional, data, numbers, devices } = f;
    let [mode, major, minor] = numbers;
    Ok(match kind {
        1 => MountStep::Bind { source: text, target, readonly, devices, propagation: flags, optional },
        2 => MountStep::Fs { fstype: text, target, flags, data, optional },
        3 => MountStep::Symlink { content: text, target },
        4 => MountStep::Node { target, mode, major, minor },
        5 => MountStep::Mask { target },
        6 => MountStep::Readonly { target },
        _ => return Err(WireError::Field(1)),
    })
}

impl Message for Isolation {
    fn put(&self, e: &mut Enc) {
        e.bytes(1, &self.root).flag(2, self.pid).flag(3, self.ipc);
        e.bytes(4, &self.hostname).flag(5, self.no_pivot);
        for step in &self.steps {
            e.bytes(6, &put_step(step));
        }
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.root = value.to_vec(),
            2 => self.pid = num(tag, value)? != 0,
            3 => self.ipc = num(tag, value)? != 0,
            4 => self.hostname = value.to_vec(),
            5 => self.no_pivot = num(tag, value)? != 0,
            6 => self.steps.push(take_step(value)?),
            _ => {}
        }
        Ok(())
    }
}

impl Message for Deadline {
    fn put(&self, e: &mut Enc) {
        e.num(1, self.at_ns).signed(2, i64::from(self.signal)).num(3, self.grace_ns);
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.at_ns = num(tag, value)?,
            2 => self.signal = signed32(tag, value)?,
            3 => self.grace_ns = num(tag, value)?,
            _ => {}
        }
        Ok(())
    }
}

impl Message for StartRequest {
    fn put(&self, e: &mut Enc) {
        e.bytes(1, &self.run_file).bytes(2, &self.label).bytes(3, &self.exe);
        e.list(4, &self.argv).list(5, &self.env).bytes(6, &self.cwd);
        e.num(7, u64::from(self.uid)).num(8, u64::from(self.gid));
        for group in &self.groups {
            e.bytes(9, &u64::from(*group).to_le_bytes());
        }
        if let Some(log) = &self.log {
            e.bytes(10, &log.encode());
        }
        for cgroup in &self.cgroups {
            e.bytes(11, &cgroup.encode());
        }
        if let Some(isolation) = &self.isolation {
            e.bytes(12, &isolation.encode());
        }
        for limit in &self.rlimits {
            e.bytes(13, &limit.encode());
        }
        e.flag(14, self.no_new_privs).signed(15, i64::from(self.oom_score_adj));
        if let Some(bounding) = self.cap_bounding {
            e.bytes(16, &bounding.to_le_bytes());
        }
        e.num(17, self.cap_ambient);
        if let Some(deadline) = &self.deadline {
            e.bytes(18, &deadline.encode());
        }
        e.flag(19, self.keep_user).bytes(20, &self.netns);
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.run_file = value.to_vec(),
            2 => self.label = value.to_vec(),
            3 => self.exe = value.to_vec(),
            4 => self.argv.push(value.to_vec()),
            5 => self.env.push(value.to_vec()),
            6 => self.cwd = value.to_vec(),
            7 => self.uid = num32(tag, value)?,
            8 => self.gid = num32(tag, value)?,
            9 => self.groups.push(num32(tag, value)?),
            10 => self.log = Some(LogPlan::decode(value)?),
            11 => self.cgroups.push(CgroupPlan::decode(value)?),
            12 => self.isolation = Some(Isolation::decode(value)?),
            13 => self.rlimits.push(Rlimit::decode(value)?),
            14 => self.no_new_privs = num(tag, value)? != 0,
            15 => self.oom_score_adj = signed32(tag, value)?,
            16 => self.cap_bounding = Some(num(tag, value)?),
            17 => self.cap_ambient = num(tag, value)?,
            18 => self.deadline = Some(Deadline::decode(value)?),
            19 => self.keep_user = num(tag, value)? != 0,
            20 => self.netns = value.to_vec(),
            _ => {}
        }
        Ok(())
    }
}

impl Message for PidRecord {
    fn put(&self, e: &mut Enc) {
        e.num(1, u64::from(self.pid)).num(2, self.start_ticks);
        e.num(3, u64::from(self.shim_pid)).num(4, self.shim_start_ticks);
        e.bytes(5, &self.boot_id).num(6, self.started_ns).list(7, &self.cgroups);
        e.flag(8, self.existing);
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.pid = num32(tag, value)?,
            2 => self.start_ticks = num(tag, value)?,
            3 => self.shim_pid = num32(tag, value)?,
            4 => self.shim_start_ticks = num(tag, value)?,
            5 => self.boot_id = value.to_vec(),
            6 => self.started_ns = num(tag, value)?,
            7 => self.cgroups.push(value.to_vec()),
            8 => self.existing = num(tag, value)? != 0,
            _ => {}
        }
        Ok(())
    }
}

impl Message for ExitRecord {
    fn put(&self, e: &mut Enc) {
        e.num(1, u64::from(self.pid)).signed(2, i64::from(self.code)).signed(3, i64::from(self.signal));
        e.flag(4, self.oom).num(5, self.started_ns).num(6, self.finished_ns);
        e.num(7, self.lost_output).bytes(8, &self.lost_reason).flag(9, self.deadline);
        e.num(10, self.user_us).num(11, self.system_us).num(12, self.max_rss_kib);
        e.num(13, u64::from(self.leftovers));
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.pid = num32(tag, value)?,
            2 => self.code = signed32(tag, value)?,
            3 => self.signal = signed32(tag, value)?,
            4 => self.oom = num(tag, value)? != 0,
            5 => self.started_ns = num(tag, value)?,
            6 => self.finished_ns = num(tag, value)?,
            7 => self.lost_output = num(tag, value)?,
            8 => self.lost_reason = value.to_vec(),
            9 => self.deadline = num(tag, value)? != 0,
            10 => self.user_us = num(tag, value)?,
            11 => self.system_us = num(tag, value)?,
            12 => self.max_rss_kib = num(tag, value)?,
            13 => self.leftovers = num32(tag, value)?,
            _ => {}
        }
        Ok(())
    }
}

impl Message for Failure {
    fn put(&self, e: &mut Enc) {
        e.bytes(1, &self.stage).bytes(2, &self.detail).signed(3, i64::from(self.errno));
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.stage = value.to_vec(),
            2 => self.detail = value.to_vec(),
            3 => self.errno = signed32(tag, value)?,
            _ => {}
        }
        Ok(())
    }
}

impl Message for SignalRequest {
    fn put(&self, e: &mut Enc) {
        e.signed(1, i64::from(self.signal)).flag(2, self.group);
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.signal = signed32(tag, value)?,
            2 => self.group = num(tag, value)? != 0,
            _ => {}
        }
        Ok(())
    }
}

impl Message for ShimStats {
    fn put(&self, e: &mut Enc) {
        e.num(1, self.output).num(2, self.lost_output).bytes(3, &self.lost_reason);
        e.num(4, u64::from(self.execs));
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.output = num(tag, value)?,
            2 => self.lost_output = num(tag, value)?,
            3 => self.lost_reason = value.to_vec(),
            4 => self.execs = num32(tag, value)?,
            _ => {}
        }
        Ok(())
    }
}

impl Message for ExecRequest {
    fn put(&self, e: &mut Enc) {
        e.list(1, &self.argv).flag(2, self.tty);
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        match tag {
            1 => self.argv.push(value.to_vec()),
            2 => self.tty = num(tag, value)? != 0,
            _ => {}
        }
        Ok(())
    }
}

impl Message for ExecExit {
    fn put(&self, e: &mut Enc) {
        e.signed(1, i64::from(self.code));
    }
    fn set(&mut self, tag: u8, value: &[u8]) -> Result<(), WireError> {
        if tag == 1 {
            self.code = signed32(tag, value)?;
        }
        Ok(())
    }
}
