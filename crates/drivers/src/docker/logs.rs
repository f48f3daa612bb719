//! Output of a container: from the engine's log into the task's log files.
//!
//! A small file per start says how far each stream got: the time of its last
//! message, how many messages have that time, and where the log file ended
//! then. It is written after the log. An agent that was killed between the two
//! finds more in the log file than the mark says, and passes over as many bytes
//! of what the engine repeats: nothing is lost and nothing is there twice.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

use super::client::{Engine, EngineError, Frames};
use super::rotate::Rotator;

/// How long to wait before asking the engine again after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long a full disk may keep output waiting before it counts as lost; the
/// engine keeps it meanwhile.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// How much of a container's output may be ahead of what is copied. More than
/// the engine keeps back for a line's end.
const LISTEN_AHEAD: u64 = 256 << 10;
/// How long to wait for copying to go on before it is begun again; doubled so
/// many times while that does not help.
const LISTEN_PATIENCE: Duration = Duration::from_secs(1);
const MAX_BACKOFF: u32 = 6;
/// How often it is begun again before the container no longer waits.
const MAX_FRUITLESS: u32 = 3;
/// How long to wait before listening again.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
/// How much is read at once when listening.
const LISTEN_CHUNK: usize = 64 << 10;
/// Stands for the count of copied bytes before it begins.
const NOT_CAUGHT_UP: u64 = u64::MAX;
/// The mark always has this many bytes, so that one write replaces it.
const MARK_BYTES: usize = 512;
/// Times kept to know repeated messages by; more than can be behind at once.
const MAX_RECENT: usize = 256 << 10;
/// How much is written at once.
const MAX_BATCH: usize = 64 << 10;
/// Digits of a time as the engine writes it, with its `Z`.
const TIME_BYTES: usize = 30;
/// How much of a line the engine takes as one message.
const MESSAGE_BYTES: usize = 16 << 10;

/// Where the output of a start goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogPlan {
    pub dir: PathBuf,
    pub task: String,
    pub max_files: u64,
    pub max_size: u64,
    /// One stream without frames.
    pub tty: bool,
}

/// How far a stream got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// Time of the last message in nanoseconds.
    at: u64,
    /// Messages of that time.
    count: u64,
    /// Bytes of later messages that were in the log already.
    beyond: u64,
    /// Number and size of the log file then.
    file: u64,
    size: u64,
}

/// The marks of both streams in their file.
#[derive(Debug)]
struct Marks {
    file: File,
    streams: [Mark; 2],
}

impl Marks {
    fn save(&self) -> io::Result<()> {
        let mut text = serde_json::to_vec(&self.streams)?;
        text.resize(MARK_BYTES.max(text.len()), b' ');
        self.file.write_all_at(&text, 0)
    }
}

fn open_marks(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The file names of the two streams.
fn bases(task: &str) -> [String; 2] {
    [format!("{task}.stdout"), format!("{task}.stderr")]
}

/// Notes where the log files end before a start, once.
pub(crate) fn prepare(marks: &Path, plan: &LogPlan) -> io::Result<()> {
    if marks.metadata().is_ok_and(|m| m.len() > 0) {
        return Ok(());
    }
    let mut streams = [Mark::default(); 2];
    for (mark, base) in streams.iter_mut().zip(bases(&plan.task)) {
        (mark.file, mark.size) = Rotator::open(&plan.dir, &base, plan.max_files, plan.max_size)?.at();
    }
    Marks { file: open_marks(marks)?, streams }.save()
}

/// One stream.
#[derive(Debug)]
struct Stream {
    rotator: Rotator,
    /// Messages up to the mark are still to be passed over.
    resuming: bool,
    /// Messages of the mark's time passed over.
    passed: u64,
    /// Bytes to pass over after that.
    skip: u64,
    /// Bytes after the mark that are in the log without those of `buf`.
    already: u64,
    /// To be written.
    buf: Vec<u8>,
    /// The last message taken: its time, and how many have it.
    last: (u64, u64),
    /// Whether it ended a line, and a hash of it.
    last_text: (bool, u64),
    /// Times of messages taken before, rising.
    recent: VecDeque<u64>,
}

/// The state of a pump: bytes lost so far, and whether everything is copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PumpState {
    pub lost: u64,
    pub done: bool,
}

/// Copies the output of one container.
struct Pump {
    marks: Marks,
    streams: [Stream; 2],
    tell: watch::Sender<PumpState>,
    /// Bytes copied.
    copied: watch::Sender<u64>,
}

/// Copies until the container has ended and everything is copied.
pub(crate) async fn run(
    engine: Arc<Engine>,
    container: String,
    plan: LogPlan,
    marks: PathBuf,
    tell: watch::Sender<PumpState>,
) {
    let mut pump = loop {
        match Pump::open(&plan, &marks, &tell) {
            Ok(pump) => break pump,
            Err(e) => {
                tracing::warn!(error = %e, container, "cannot open the task's log files; trying again");
                if ended(&engine, &container).await {
                    tell.send_modify(|s| s.done = true);
                    return;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    };
    let (copied, again) = (pump.copied.subscribe(), tokio::sync::Notify::new());
    tokio::select! {
        () = pump.run(&engine, &container, plan.tty, &again) => {}
        () = watch_over(&engine, &container, plan.tty, copied, &again) => {}
    }
    tell.send_modify(|s| s.done = true);
}

/// True if the container runs no longer. One nobody can tell about runs.
async fn ended(engine: &Engine, container: &str) -> bool {
    match engine.get(&format!("/containers/{container}/json")).await {
        Ok(seen) => {
            let status = seen.pointer("/State/Status").and_then(serde_json::Value::as_str);
            matches!(status, Some("exited" | "dead"))
        }
        Err(e) => e.not_found(),
    }
}

/// Watches the copying by listening to the container itself.
///
/// The engine drops old output when it has too much of it, but it makes the
/// container wait for everybody who listens: so this reads on only as far as
/// output is copied. And some engines forget to go on with the log when they
/// begin a new file of it: then copying is begun again.
async fn watch_over(
    engine: &Engine,
    container: &str,
    tty: bool,
    mut copied: watch::Receiver<u64>,
    again: &tokio::sync::Notify,
) {
    // What there is already is copied first; it is not what is listened to.
    while *copied.borrow_and_update() == NOT_CAUGHT_UP {
        if copied.changed().await.is_err() {
            break;
        }
    }
    loop {
        if let Err(e) = listen(engine, container, tty, &mut copied, again).await {
            tracing::debug!(error = %e, container, "cannot listen to a container's output");
        }
        // It has ended, or the engine is gone; the copying finds out.
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
}

async fn listen(
    engine: &Engine,
    container: &str,
    tty: bool,
    copied: &mut watch::Receiver<u64>,
    again: &tokio::sync::Notify,
) -> Result<(), EngineError> {
    let before = *copied.borrow_and_update();
    let path = format!("/containers/{container}/attach?stream=1&stdout=1&stderr=1");
    let mut wire = engine.upgrade(&path, &serde_json::Value::Null).await?;
    let (mut frames, mut buf, mut heard) = (Frames::default(), vec![0; LISTEN_CHUNK], 0_u64);
    let mut fruitless = 0;
    let mut deadline = tokio::time::Instant::now() + LISTEN_PATIENCE;
    loop {
        let now = copied.borrow_and_update().saturating_sub(before);
        // Never for ever: it is better to lose output than to stop a task.
        let wait = now + LISTEN_AHEAD < heard && fruitless <= MAX_FRUITLESS;
        tokio::select! {
            read = wire.read(&mut buf), if !wait => {
                let n = read.map_err(|e| EngineError::Unreachable(e.to_string()))?;
                let bytes = buf.get(..n).unwrap_or_default();
                if bytes.is_empty() {
                    return Ok(());
                }
                if now >= heard {
                    deadline = tokio::time::Instant::now() + LISTEN_PATIENCE;
                }
                let new = if tty { n } else { frames.feed(bytes)?.iter().map(|(_, frame)| frame.len()).sum() };
                heard += new as u64;
            }
            changed = copied.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                fruitless = 0;
                deadline = tokio::time::Instant::now() + LISTEN_PATIENCE;
            }
            () = tokio::time::sleep_until(deadline), if now < heard => {
                // The engine holds back a line that has not ended, so there
                // need not be anything to copy.
                again.notify_one();
                fruitless += 1;
                deadline = tokio::time::Instant::now() + LISTEN_PATIENCE * 2_u32.pow(fruitless.min(MAX_BACKOFF));
            }
        }
    }
}

impl Pump {
    /// Copies until the container has ended.
    async fn run(&mut self, engine: &Engine, container: &str, tty: bool, again: &tokio::sync::Notify) {
        let (mut follow, mut over) = (false, false);
        loop {
            let result = tokio::select! {
                result = self.copy(engine, container, tty, follow) => result,
                // Everything not marked yet is copied again.
                () = again.notified(), if follow && !over => continue,
            };
            match result {
                // What it wrote before its end was seen is copied now.
                Ok(()) if over => return,
                Ok(()) if follow => {
                    over = ended(engine, container).await;
                    if !over {
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                }
                Ok(()) => {
                    follow = true;
                    self.copied.send_replace(0);
                }
                Err(e) if e.not_found() => return,
                Err(e) => {
                    tracing::warn!(error = %e, container, "reading the container's log failed; trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    fn open(plan: &LogPlan, marks: &Path, tell: &watch::Sender<PumpState>) -> io::Result<Pump> {
        let file = open_marks(marks)?;
        let mut text = vec![0; MARK_BYTES];
        let read = file.read_at(&mut text, 0)?;
        let saved = serde_json::from_slice::<[Mark; 2]>(text.get(..read).unwrap_or_default());
        if saved.is_err() {
            // Rather twice than not at all.
            tracing::warn!(file = %marks.display(), "the mark of a task's log cannot be read; its output is copied again");
        }
        let [stdout, stderr] = bases(&plan.task);
        let open = |base: &str| Rotator::open(&plan.dir, base, plan.max_files, plan.max_size);
        let mut rotators = [open(&stdout)?, open(&stderr)?];
        let streams = saved.unwrap_or_else(|_| {
            rotators.each_mut().map(|r| {
                let (file, size) = r.at();
                Mark { file, size, ..Mark::default() }
            })
        });
        let [out, err] = rotators;
        let [out_mark, err_mark] = streams;
        Ok(Pump {
            marks: Marks { file, streams },
            streams: [Stream::new(out, out_mark), Stream::new(err, err_mark)],
            tell: tell.clone(),
            copied: watch::Sender::new(NOT_CAUGHT_UP),
        })
    }

    /// Copies what there is after the marks until the engine ends the stream.
    async fn copy(&mut self, engine: &Engine, container: &str, tty: bool, follow: bool) -> Result<(), EngineError> {
        for (stream, mark) in self.streams.iter_mut().zip(self.marks.streams) {
            stream.begin(mark);
        }
        let used = if tty { &self.marks.streams[..1] } else { &self.marks.streams[..] };
        let since = used.iter().map(|m| m.at).min().unwrap_or(0);
        let path = format!(
            "/containers/{container}/logs?follow={}&stdout=1&stderr=1&timestamps=1&since={}.{:09}",
            u8::from(follow),
            since / 1_000_000_000,
            since % 1_000_000_000
        );
        let mut reply = engine.open(Method::GET, &path, &[], None).await?;
        let (mut frames, mut terminal) = (Frames::default(), Terminal::default());
        while let Some(chunk) = reply.chunk().await? {
            let mut next = Some(chunk);
            // The engine sends line by line; what is here is written at once.
            while let Some(chunk) = next {
                if tty {
                    for (at, message) in terminal.feed(&chunk)? {
                        self.take(0, at, &message);
                    }
                } else {
                    for (number, frame) in frames.feed(&chunk)? {
                        let (at, message) = split_time(&frame)?;
                        self.take(usize::from(number == 2), at, message);
                    }
                }
                let waiting: usize = self.streams.iter().map(|s| s.buf.len()).sum();
                next = if waiting < MAX_BATCH { reply.ready_chunk().await? } else { None };
            }
            self.flush().await;
        }
        if tty {
            for (at, message) in terminal.finish()? {
                self.take(0, at, &message);
            }
            self.flush().await;
        }
        Ok(())
    }

    fn take(&mut self, index: usize, at: u64, message: &[u8]) {
        if let Some(stream) = self.streams.get_mut(index) {
            stream.take(at, message);
        }
    }

    /// Writes what was taken.
    async fn flush(&mut self) {
        let taken: usize = self.streams.iter().map(|s| s.buf.len()).sum();
        if taken == 0 {
            return;
        }
        for index in 0..self.streams.len() {
            let started = tokio::time::Instant::now();
            let mut written = 0;
            loop {
                match self.write_some(index, &mut written) {
                    Ok(()) => break,
                    Err(e) if started.elapsed() < WRITE_PATIENCE => {
                        tracing::warn!(error = %e, "cannot write a task's log; trying again");
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                    Err(e) => {
                        let left = self.streams.get(index).map_or(0, |s| s.buf.len().saturating_sub(written)) as u64;
                        tracing::warn!(error = %e, bytes = left, "output of a task could not be kept");
                        self.tell.send_modify(|s| s.lost += left);
                        break;
                    }
                }
            }
            self.settle(index);
        }
        self.copied.send_if_modified(|copied| {
            let caught_up = *copied != NOT_CAUGHT_UP;
            if caught_up {
                *copied += taken as u64;
            }
            caught_up
        });
    }

    /// Writes the buffer of a stream from `written` on. No await between a
    /// write and its mark.
    fn write_some(&mut self, index: usize, written: &mut usize) -> io::Result<()> {
        let Pump { marks, streams, .. } = self;
        let Some(stream) = streams.get_mut(index) else { return Ok(()) };
        while *written < stream.buf.len() {
            let rest = stream.buf.get(*written..).unwrap_or_default();
            let (cut, full) = stream.rotator.fit(rest);
            let (done, result) = stream.rotator.write(rest.get(..cut).unwrap_or(rest));
            *written += done;
            result?;
            if full {
                stream.rotator.next()?;
                // The mark must name a file that is there, so it moves before
                // older files go.
                if let Some(mark) = marks.streams.get_mut(index) {
                    (mark.file, mark.size) = stream.rotator.at();
                    mark.beyond = stream.already + *written as u64;
                }
                marks.save()?;
                stream.rotator.prune();
            }
        }
        Ok(())
    }

    /// Everything taken from a stream counts as done.
    fn settle(&mut self, index: usize) {
        let (Some(stream), Some(mark)) = (self.streams.get_mut(index), self.marks.streams.get_mut(index)) else {
            return;
        };
        if stream.buf.is_empty() {
            return;
        }
        let (file, size) = stream.rotator.at();
        *mark = Mark { at: stream.last.0, count: stream.last.1, beyond: 0, file, size };
        stream.already = 0;
        stream.buf.clear();
        if let Err(e) = self.marks.save() {
            tracing::warn!(error = %e, "cannot note how far a task's log is copied");
        }
    }
}

impl Stream {
    fn new(rotator: Rotator, mark: Mark) -> Stream {
        Stream {
            rotator,
            resuming: true,
            passed: 0,
            skip: 0,
            already: 0,
            buf: Vec::new(),
            last: (mark.at, mark.count),
            recent: VecDeque::new(),
            last_text: (false, 0),
        }
    }

    /// The engine begins again at or before the mark.
    fn begin(&mut self, mark: Mark) {
        self.resuming = true;
        self.passed = 0;
        self.last = (mark.at, mark.count);
        self.skip = mark.beyond + self.rotator.bytes_after(mark.file, mark.size);
        self.already = self.skip;
        self.buf.clear();
        self.recent.clear();
    }

    /// Whether a message with the time of the last is that one again. Only
    /// pieces of one line have a time in common.
    fn repeats_last(&self, message: &[u8]) -> bool {
        let (ended_line, text) = self.last_text;
        ended_line && (self.last.1 > 1 || text == hash(message))
    }

    /// Takes a message if it is new.
    fn take(&mut self, at: u64, message: &[u8]) {
        if at < self.last.0 {
            // Engines repeat messages when they begin a new file. A time that
            // was not there before is of a clock that was set back.
            if self.resuming || self.recent.binary_search(&at).is_ok() {
                (self.resuming, self.passed) = (true, if self.resuming { self.passed } else { 0 });
                return;
            }
            self.recent.clear();
            self.last = (at, 0);
        }
        if !self.resuming && at == self.last.0 && self.repeats_last(message) {
            (self.resuming, self.passed) = (true, 0);
        }
        if self.resuming && at == self.last.0 && self.passed < self.last.1 {
            self.passed += 1;
            return;
        }
        self.resuming = false;
        self.last_text = (message.ends_with(b"\n"), hash(message));
        self.last = if at == self.last.0 { (at, self.last.1 + 1) } else { (at, 1) };
        if self.recent.back() != Some(&at) {
            if self.recent.len() >= MAX_RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(at);
        }
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX).min(message.len());
        self.skip -= skip as u64;
        self.buf.extend_from_slice(message.get(skip..).unwrap_or_default());
    }
}

fn hash(message: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(message);
    hasher.finish()
}

/// Reads the time before a message.
fn split_time(frame: &[u8]) -> Result<(u64, &[u8]), EngineError> {
    let bad = || {
        let start = String::from_utf8_lossy(frame.get(..TIME_BYTES.min(frame.len())).unwrap_or_default()).into_owned();
        EngineError::Protocol(format!("a log message without a time: {start:?}"))
    };
    let space = frame.iter().position(|b| *b == b' ').filter(|at| *at <= TIME_BYTES).ok_or_else(bad)?;
    let (time, message) = frame.split_at(space);
    let at = std::str::from_utf8(time).ok().and_then(unix_ns).ok_or_else(bad)?;
    Ok((at, message.get(1..).unwrap_or_default()))
}

/// A time such as `2026-12-01T03:45:43.545018921Z` in nanoseconds since 1970.
pub(crate) fn unix_ns(text: &str) -> Option<u64> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(str::parse::<u64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut clock = clock.split(':').map(str::parse::<u64>);
    let (hour, minute, second) = (clock.next()?.ok()?, clock.next()?.ok()?, clock.next()?.ok()?);
    if !(1970..=2500).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
    {
        return None;
    }
    // Days since 1970 with years that begin in March, so that leap days are last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    let seconds = (days.checked_sub(719_468)? * 24 + hour) * 3600 + minute * 60 + second;
    let digits = fraction.len();
    let fraction: u64 = if digits <= 9 { fraction.parse().ok()? } else { return None };
    let nanos = fraction * 10_u64.pow(u32::try_from(9 - digits).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Takes apart the log of a terminal: times are in the text, one before every
/// message, that is before every line and every full piece of a long line.
#[derive(Debug, Default)]
struct Terminal {
    buf: Vec<u8>,
}

impl Terminal {
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, EngineError> {
        self.buf.extend_from_slice(bytes);
        let mut out = Vec::new();
        // Enough for a whole message and the time of the next.
        while let Some(end) = self.message_end() {
            let message: Vec<u8> = self.buf.drain(..end).collect();
            let (at, text) = split_time(&message)?;
            out.push((at, text.to_vec()));
        }
        Ok(out)
    }

    /// Where the first message ends, if that is known already.
    fn message_end(&self) -> Option<usize> {
        let longest = TIME_BYTES + 1 + MESSAGE_BYTES;
        let window = self.buf.get(..longest.min(self.buf.len()))?;
        match window.iter().position(|b| *b == b'\n') {
            Some(at) => Some(at + 1),
            None => (window.len() == longest).then_some(longest),
        }
    }

    /// The last message, which need not end with a line.
    fn finish(&mut self) -> Result<Vec<(u64, Vec<u8>)>, EngineError> {
        if self.buf.is_empty() {
            return Ok(Vec::new());
        }
        let message = std::mem::take(&mut self.buf);
        let (at, text) = split_time(&message)?;
        Ok(vec![(at, text.to_vec())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times() {
        assert_eq!(unix_ns("1970-01-01T00:00:00.000000001Z"), Some(1));
        assert_eq!(unix_ns("2000-02-29T12:00:00Z"), Some(951_825_600_000_000_000));
        assert_eq!(unix_ns("2026-12-01T03:45:43.545018921Z"), Some(1_796_096_743_545_018_921));
        for bad in [
            "",
            "x",
            "2026-13-01T00:00:00Z",
            "2026-12-01T00:00:00",
            "0001-01-01T00:00:00Z",
            "2026-12-01T00:00:00.1234567890Z",
        ] {
            assert_eq!(unix_ns(bad), None, "{bad}");
        }
    }

    fn plan(dir: &Path, max_size: u64) -> LogPlan {
        LogPlan { dir: dir.to_owned(), task: "t".to_owned(), max_files: 1000, max_size, tty: false }
    }

    fn contents(dir: &Path) -> Vec<u8> {
        let mut out = Vec::new();
        for index in 0.. {
            let Ok(bytes) = std::fs::read(dir.join(format!("t.stdout.{index}"))) else { return out };
            out.extend(bytes);
        }
        out
    }

    /// Whatever moment the agent is killed at, what is copied again afterwards
    /// completes the log exactly.
    #[tokio::test]
    async fn a_kill_at_any_byte_loses_and_doubles_nothing() {
        // Pieces of a line have its time in common; rotation is in between.
        let mut line = 0;
        let messages: Vec<(u64, String)> = (0..40_u64)
            .map(|i| {
                let (at, open) = (line, i % 4 != 3);
                line += u64::from(!open || i % 8 < 4);
                (at, format!("message {i}{}", if line > at { "\n" } else { "" }))
            })
            .collect();
        let whole: String = messages.iter().map(|(_, m)| m.as_str()).collect();
        for cut_after in 0..messages.len() {
            let dir = tempfile::tempdir().unwrap();
            let (marks, plan) = (dir.path().join("marks"), plan(dir.path(), 50));
            prepare(&marks, &plan).unwrap();
            let before = std::fs::read(&marks).unwrap();
            let (tell, _seen) = watch::channel(PumpState::default());
            let mut pump = Pump::open(&plan, &marks, &tell).unwrap();
            let (first, _) = messages.split_at(cut_after);
            let mut saved = vec![before];
            for (number, piece) in first.chunks(5).enumerate() {
                if number == 0 {
                    pump.streams[0].begin(pump.marks.streams[0]);
                }
                for (at, message) in piece {
                    pump.streams[0].take(at + 1, message.as_bytes());
                }
                pump.flush().await;
                saved.push(std::fs::read(&marks).unwrap());
            }
            drop(pump);
            // Killed after the last write but before its mark.
            if cut_after % 2 == 1 && saved.len() > 1 {
                std::fs::write(&marks, &saved[saved.len() - 2]).unwrap();
            }
            let mut pump = Pump::open(&plan, &marks, &tell).unwrap();
            pump.streams[0].begin(pump.marks.streams[0]);
            for (at, message) in &messages {
                pump.streams[0].take(at + 1, message.as_bytes());
            }
            pump.flush().await;
            assert_eq!(String::from_utf8(contents(dir.path())).unwrap(), whole, "cut after {cut_after}");
            assert_eq!(pump.tell.borrow().lost, 0);
        }
    }

    #[tokio::test]
    async fn repeated_messages_are_known_and_clocks_may_be_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let (marks, plan) = (dir.path().join("marks"), plan(dir.path(), 1000));
        prepare(&marks, &plan).unwrap();
        let (tell, _seen) = watch::channel(PumpState::default());
        let mut pump = Pump::open(&plan, &marks, &tell).unwrap();
        pump.streams[0].begin(Mark::default());
        for (at, text) in [
            (10, "a"),
            (20, "b"),
            (20, "c"),
            (30, "d"),
            (30, "e"),
            // Again from the second on, and then what is new at the same time.
            (20, "b"),
            (20, "c"),
            (30, "d"),
            (30, "e"),
            (30, "f"),
            // The clock was set back between.
            (15, "g"),
            (16, "h"),
            (15, "g"),
            (16, "h"),
            (17, "i\n"),
            // The last line again, alone and after others.
            (17, "i\n"),
            (18, "j\n"),
            (17, "i\n"),
            (18, "j\n"),
            (19, "k\n"),
        ] {
            pump.take(0, at, text.as_bytes());
        }
        pump.flush().await;
        assert_eq!(String::from_utf8(contents(dir.path())).unwrap(), "abcdefghi\nj\nk\n");
    }

    #[test]
    fn a_terminal_has_a_time_before_every_message() {
        let time = "2026-12-01T03:45:43.545018921Z";
        let long = "x".repeat(MESSAGE_BYTES);
        let text = format!("{time} one\r\n{time} {long}{time} tail\n{time} prompt> ");
        for step in [1, 7, 4096, 100_000] {
            let mut terminal = Terminal::default();
            let mut got = Vec::new();
            for piece in text.as_bytes().chunks(step) {
                got.extend(terminal.feed(piece).unwrap());
            }
            got.extend(terminal.finish().unwrap());
            let texts: Vec<String> = got.into_iter().map(|(_, m)| String::from_utf8(m).unwrap()).collect();
            assert_eq!(texts, ["one\r\n".to_owned(), long.clone(), "tail\n".to_owned(), "prompt> ".to_owned()]);
        }
    }
}
