//! The agent's own log: the peer's line shape and JSON keys, to standard error and to a rotated file, and to whoever
//! watches over the API.
//!
//! A line is `TIME [LEVEL]  MODULE: MESSAGE: key=value …`; the module is the event's target.

use crate::config::settings::LogSettings;
use serde_json::{Map, Value};
use std::fmt::{Debug, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Lines a slow watcher may lag behind before it loses some (and is told so).
const WATCH_BACKLOG: usize = 1024;

/// One line of the log, for watchers.
#[derive(Debug, Clone)]
pub struct Line {
    pub level: Level,
    pub text: Arc<str>,
    pub json: Arc<str>,
}

/// The log of this process. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    style: RwLock<Style>,
    file: Option<Mutex<Rotated>>,
    watchers: broadcast::Sender<Line>,
}

/// What of a log may change while it is written.
#[derive(Clone, Copy)]
struct Style {
    /// None: off.
    level: Option<Level>,
    json: bool,
    location: bool,
}

impl Style {
    fn of(settings: &LogSettings) -> Style {
        Style { level: parse_level(&settings.level), json: settings.json, location: settings.location }
    }
}

impl Log {
    /// A log as configured; opens its file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(settings: &LogSettings) -> io::Result<Log> {
        let file = match &settings.file {
            Some(path) => Some(Mutex::new(Rotated::open(path, settings)?)),
            None => None,
        };
        Ok(Log {
            inner: Arc::new(Inner {
                style: RwLock::new(Style::of(settings)),
                file,
                watchers: broadcast::channel(WATCH_BACKLOG).0,
            }),
        })
    }

    /// Makes it the log of everything in this process.
    ///
    /// # Errors
    /// There is one already.
    pub fn install(&self) -> Result<(), String> {
        use tracing_subscriber::layer::SubscriberExt;
        let subscriber = tracing_subscriber::registry().with(self.clone());
        tracing::subscriber::set_global_default(subscriber).map_err(|e| e.to_string())
    }

    /// Changes level, shape and rotation, as a reload does. The file stays the one that was opened.
    pub fn restyle(&self, settings: &LogSettings) {
        *self.inner.style.write().unwrap_or_else(PoisonError::into_inner) = Style::of(settings);
        if let Some(file) = &self.inner.file {
            file.lock().unwrap_or_else(PoisonError::into_inner).rotate_as(settings);
        }
    }

    fn style(&self) -> Style {
        *self.inner.style.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every line from now on that is at least of the log's own level.
    pub fn watch(&self) -> broadcast::Receiver<Line> {
        self.inner.watchers.subscribe()
    }

    fn wants(&self, level: &Level) -> bool {
        self.style().level.is_some_and(|most| *level <= most)
    }
}

/// The level of a word; none for OFF.
pub fn parse_level(word: &str) -> Option<Level> {
    match word.to_ascii_uppercase().as_str() {
        "TRACE" => Some(Level::TRACE),
        "DEBUG" => Some(Level::DEBUG),
        "INFO" => Some(Level::INFO),
        "WARN" => Some(Level::WARN),
        "ERROR" => Some(Level::ERROR),
        _ => None,
    }
}

/// Libraries that say more than people want: heard from WARN on.
const TALKATIVE: &[&str] = &["openraft", "hyper", "rustls", "tungstenite"];

/// Whether an event may be of interest at all.
fn is_ours(metadata: &tracing::Metadata<'_>) -> bool {
    *metadata.level() <= Level::WARN || !TALKATIVE.iter().any(|library| metadata.target().starts_with(library))
}

impl<S: Subscriber> Layer<S> for Log {
    /// What nobody wants costs nothing: the answer is kept per place in the code.
    fn register_callsite(&self, metadata: &'static tracing::Metadata<'static>) -> Interest {
        if is_ours(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        is_ours(metadata) && (self.wants(metadata.level()) || self.inner.watchers.receiver_count() > 0)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        // Who watches over the API chooses a level of their own.
        let watched = self.inner.watchers.receiver_count() > 0;
        let wanted = self.wants(metadata.level());
        if !wanted && !watched {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now = timestamp(SystemTime::now());
        let style = self.style();
        let location = match (style.location, metadata.file(), metadata.line()) {
            (true, Some(file), Some(line)) => format!("{file}:{line}"),
            _ => String::new(),
        };
        let module = module_name(metadata.target());
        let text = text_line(&now, *metadata.level(), &module, &location, &fields);
        let json = json_line(&now, *metadata.level(), &module, &location, &fields);
        if wanted {
            let chosen = if style.json { &json } else { &text };
            // The log itself has nowhere to report that it cannot be written.
            let _ = writeln!(io::stderr(), "{chosen}");
            if let Some(file) = &self.inner.file {
                let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write_line(chosen);
            }
        }
        if watched {
            let _ = self.inner.watchers.send(Line { level: *metadata.level(), text: text.into(), json: json.into() });
        }
    }
}

/// `herdsman_node::runner` becomes `node.runner`; a target that was chosen stays.
fn module_name(target: &str) -> String {
    target.strip_prefix("herdsman_").unwrap_or(target).replace("::", ".")
}

fn timestamp(now: SystemTime) -> String {
    let nanos = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let text = herdsman_model::time_text(i64::try_from(nanos).unwrap_or(i64::MAX));
    // Milliseconds are enough for people: `2026-12-01T00:17:02.388Z`.
    match text.split_once('.') {
        Some((seconds, fraction)) => {
            let digits: String = fraction.chars().filter(char::is_ascii_digit).chain("000".chars()).take(3).collect();
            format!("{seconds}.{digits}Z")
        }
        None => format!("{}.000Z", text.trim_end_matches('Z')),
    }
}

fn text_line(now: &str, level: Level, module: &str, location: &str, fields: &Fields) -> String {
    let level = format!("[{level}]");
    let mut line = format!("    {now} {level:<7} ");
    if !location.is_empty() {
        let _ = write!(line, "{location}: ");
    }
    let _ = write!(line, "{module}: {}", fields.message);
    if !fields.others.is_empty() {
        line.push(':');
    }
    for (name, value) in &fields.others {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let quoted = text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == '"' || c == '=');
        let text = if quoted { format!("{text:?}") } else { text };
        let _ = write!(line, " {name}={text}");
    }
    line
}

fn json_line(now: &str, level: Level, module: &str, location: &str, fields: &Fields) -> String {
    let mut object = Map::new();
    object.insert("@level".to_string(), level.to_string().to_ascii_lowercase().into());
    object.insert("@message".to_string(), fields.message.clone().into());
    object.insert("@module".to_string(), module.into());
    object.insert("@timestamp".to_string(), now.into());
    if !location.is_empty() {
        object.insert("@caller".to_string(), location.into());
    }
    for (name, value) in &fields.others {
        object.insert(name.clone(), value.clone());
    }
    Value::Object(object).to_string()
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(String, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        } else {
            self.others.push((field.name().to_string(), value));
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

/// A log file that is rotated by age and size.
struct Rotated {
    path: PathBuf,
    file: File,
    bytes: u64,
    opened: SystemTime,
    after: Duration,
    max_bytes: u64,
    keep: u64,
}

/// The name of the log in a folder.
const FILE_NAME: &str = "nomad.log";

impl Rotated {
    fn open(path: &Path, settings: &LogSettings) -> io::Result<Rotated> {
        let is_folder = path.as_os_str().to_string_lossy().ends_with('/') || path.is_dir();
        let path = if is_folder { path.join(FILE_NAME) } else { path.to_path_buf() };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Rotated {
            path,
            file,
            bytes,
            opened: SystemTime::now(),
            after: settings.rotate_after,
            max_bytes: settings.rotate_bytes,
            keep: settings.keep_files,
        })
    }

    fn rotate_as(&mut self, settings: &LogSettings) {
        self.after = settings.rotate_after;
        self.max_bytes = settings.rotate_bytes;
        self.keep = settings.keep_files;
    }

    fn write_line(&mut self, line: &str) -> io::Result<()> {
        let too_large = self.max_bytes > 0 && self.bytes >= self.max_bytes;
        let too_old = !self.after.is_zero() && self.opened.elapsed().is_ok_and(|age| age >= self.after);
        if (too_large || too_old) && self.bytes > 0 {
            self.rotate()?;
        }
        writeln!(self.file, "{line}")?;
        self.bytes += line.len() as u64 + 1;
        Ok(())
    }

    /// Old files are named with the time they ended, so that their names sort by age.
    fn rotate(&mut self) -> io::Result<()> {
        let stamp = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let (stem, ending) = self.names();
        let aside = self.path.with_file_name(format!("{stem}-{stamp:020}{ending}"));
        std::fs::rename(&self.path, aside)?;
        self.file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        self.bytes = 0;
        self.opened = SystemTime::now();
        self.remove_oldest(&stem, &ending)
    }

    fn names(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let ending = text(self.path.extension());
        (text(self.path.file_stem()), if ending.is_empty() { ending } else { format!(".{ending}") })
    }

    fn remove_oldest(&self, stem: &str, ending: &str) -> io::Result<()> {
        let Some(folder) = self.path.parent().filter(|_| self.keep > 0) else { return Ok(()) };
        let mut old: Vec<PathBuf> = std::fs::read_dir(folder)?
            .filter_map(|e| e.ok().map(|e| e.path()))
            .filter(|p| {
                let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                name.starts_with(&format!("{stem}-")) && name.ends_with(ending)
            })
            .collect();
        old.sort();
        let surplus = old.len().saturating_sub(usize::try_from(self.keep).unwrap_or(usize::MAX));
        old.iter().take(surplus).try_for_each(std::fs::remove_file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        Fields {
            message: "node ready".to_string(),
            others: vec![
                ("id".to_string(), "a1".into()),
                ("why".to_string(), "two words".into()),
                ("n".to_string(), 3.into()),
            ],
        }
    }

    #[test]
    fn lines_have_the_shape_that_tailers_know() {
        let line = text_line("2026-12-01T00:17:02.388Z", Level::INFO, "node", "", &fields());
        assert_eq!(line, "    2026-12-01T00:17:02.388Z [INFO]  node: node ready: id=a1 why=\"two words\" n=3");
        let json: Value = serde_json::from_str(&json_line("T", Level::WARN, "node", "", &fields())).unwrap();
        assert_eq!(json["@level"], "warn");
        assert_eq!(json["@message"], "node ready");
        assert_eq!(json["n"], 3);
    }

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(timestamp(SystemTime::UNIX_EPOCH + Duration::from_millis(1_500)), "1970-01-01T00:00:01.500Z");
        assert_eq!(timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(1)), "1970-01-01T00:00:01.000Z");
    }

    #[test]
    fn files_rotate_by_size_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let settings = LogSettings {
            level: "INFO".into(),
            json: false,
            file: None,
            rotate_after: Duration::ZERO,
            rotate_bytes: 10,
            keep_files: 2,
            location: false,
        };
        let mut log = Rotated::open(&folder.path().join("a.log"), &settings).unwrap();
        for n in 0..6 {
            log.write_line(&format!("line number {n}")).unwrap();
        }
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into())
            .collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        assert_eq!(std::fs::read_to_string(folder.path().join("a.log")).unwrap(), "line number 5\n");
    }
}
