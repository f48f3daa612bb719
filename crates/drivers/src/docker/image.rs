//! Images: names, pulls, archives, and removal of those nobody uses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::Value;
use tokio::sync::watch;

use super::auth::{DEFAULT_REGISTRY, Login};
use super::client::{Engine, EngineError, JsonLines, escape};
use crate::driver::StartError;
use crate::types::EventSink;

/// How often a long pull is told of.
const PROGRESS_PERIOD: Duration = Duration::from_secs(30);
/// Layers of an image whose progress is counted.
const MAX_LAYERS: usize = 1024;

/// The name of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ImageName {
    /// Registry and path.
    pub repository: String,
    /// Tag, or a digest with its algorithm.
    pub tag: String,
    digest: bool,
}

impl ImageName {
    /// Reads `[https://]repository[:tag|@digest]`. A colon before the last
    /// slash is a port.
    pub fn parse(text: &str) -> Result<ImageName, String> {
        let bare = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
        let bad = |why: &str| Err(format!("image {text:?}: {why}; expected repository[:tag] or repository@digest"));
        if bare.is_empty() || bare.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return bad("empty or with blanks");
        }
        let (named, digest) = match bare.split_once('@') {
            Some((named, digest)) => (named, Some(digest)),
            None => (bare, None),
        };
        let path_at = named.rfind('/').map_or(0, |at| at + 1);
        let last = named.get(path_at..).unwrap_or_default();
        let (repository, tag) = match last.rfind(':') {
            Some(colon) => {
                let (repository, tag) = named.split_at(path_at + colon);
                (repository, tag.strip_prefix(':').unwrap_or(tag))
            }
            None => (named, "latest"),
        };
        if repository.is_empty() || tag.is_empty() || digest.is_some_and(|d| !d.contains(':')) {
            return bad("a part of it is missing");
        }
        Ok(ImageName {
            repository: repository.to_owned(),
            tag: digest.unwrap_or(tag).to_owned(),
            digest: digest.is_some(),
        })
    }

    /// The registry's host.
    pub fn registry(&self) -> &str {
        match self.repository.split_once('/') {
            Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
            _ => DEFAULT_REGISTRY,
        }
    }

    /// What its tag stands for changes by convention.
    pub fn moving(&self) -> bool {
        !self.digest && self.tag == "latest"
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.digest { '@' } else { ':' };
        write!(f, "{}{sign}{}", self.repository, self.tag)
    }
}

/// Where a pull is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PullState {
    Running(String),
    Done,
    Failed(StartError),
}

/// A pull others may join. Given up when nobody waits for it.
struct Pull {
    state: watch::Receiver<PullState>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type PullKey = (ImageName, Option<Login>);

/// Pulls under way, and images to remove.
#[derive(Default)]
pub(crate) struct Images {
    pulls: Mutex<BTreeMap<PullKey, Weak<Pull>>>,
    used: Mutex<Used>,
}

/// Who uses which image.
#[derive(Default)]
struct Used {
    /// Images this driver brought, by id, with the time of their last use if
    /// nobody uses them now.
    brought: BTreeMap<String, Option<Instant>>,
    /// Image by container.
    by_container: BTreeMap<String, String>,
}

/// What to pull and how.
pub(crate) struct PullRequest<'a> {
    pub name: &'a ImageName,
    pub login: Option<Login>,
    pub limit: Duration,
    pub activity_limit: Duration,
    pub events: &'a EventSink,
}

impl Images {
    /// Pulls, together with everybody who pulls the same.
    pub async fn pull(&self, engine: &Arc<Engine>, request: PullRequest<'_>) -> Result<(), StartError> {
        let text = request.name.to_string();
        request.events.tell("Downloading image", &[("image", &text)]);
        let pull = self.join(engine, &request);
        let mut state = pull.state.clone();
        let waiting = async {
            let mut told = tokio::time::interval(PROGRESS_PERIOD);
            told.tick().await;
            loop {
                tokio::select! {
                    changed = state.changed() => {
                        match &*state.borrow_and_update() {
                            PullState::Done => return Ok(()),
                            PullState::Failed(e) => return Err(e.clone()),
                            PullState::Running(_) => {}
                        }
                        if changed.is_err() {
                            return Err(StartError::recoverable(format!("Failed to pull `{text}`: it was given up")));
                        }
                    }
                    _ = told.tick() => {
                        let PullState::Running(progress) = state.borrow().clone() else { continue };
                        let message = format!("Docker image pull progress: {progress}");
                        request.events.tell(&message, &[("image", &text)]);
                    }
                }
            }
        };
        match tokio::time::timeout(request.limit, waiting).await {
            Ok(result) => result,
            Err(_) => {
                let limit = request.limit;
                Err(StartError::recoverable(format!(
                    "Failed to pull `{text}`: it took longer than {limit:?}; a longer image_pull_timeout may help"
                )))
            }
        }
    }

    fn join(&self, engine: &Arc<Engine>, request: &PullRequest<'_>) -> Arc<Pull> {
        let key = (request.name.clone(), request.login.clone());
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        pulls.retain(|_, pull| pull.strong_count() > 0);
        let under_way = pulls.get(&key).and_then(Weak::upgrade);
        if let Some(pull) = under_way.filter(|p| matches!(*p.state.borrow(), PullState::Running(_))) {
            return pull;
        }
        let (tell, state) = watch::channel(PullState::Running("waiting for the registry".to_owned()));
        let (engine, name, login, limit) =
            (Arc::clone(engine), request.name.clone(), request.login.clone(), request.activity_limit);
        let task = tokio::spawn(async move {
            let result = run_pull(&engine, &name, login.as_ref(), limit, &tell).await;
            let _ = tell.send(match result {
                Ok(()) => PullState::Done,
                Err(e) => PullState::Failed(e),
            });
        });
        let pull = Arc::new(Pull { state, task });
        pulls.insert(key, Arc::downgrade(&pull));
        pull
    }

    /// A container of this driver uses an image.
    pub fn in_use(&self, container: &str, image: &str) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.by_container.insert(container.to_owned(), image.to_owned());
        if let Some(since) = used.brought.get_mut(image) {
            *since = None;
        }
    }

    /// This driver brought an image to this host.
    pub fn brought(&self, image: &str) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = !used.by_container.values().any(|i| i == image);
        used.brought.insert(image.to_owned(), idle.then(Instant::now));
    }

    /// A container is gone.
    pub fn released(&self, container: &str) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(image) = used.by_container.remove(container) else { return };
        let idle = !used.by_container.values().any(|i| *i == image);
        if let Some(since) = used.brought.get_mut(&image).filter(|_| idle) {
            *since = Some(Instant::now());
        }
    }

    /// Everything this driver brought.
    pub fn all_brought(&self) -> Vec<String> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).brought.keys().cloned().collect()
    }

    /// Images nobody has used for this long; they are no longer known after.
    pub fn take_idle(&self, delay: Duration) -> Vec<String> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |since: &Option<Instant>| since.is_some_and(|at| at.elapsed() >= delay);
        let idle: Vec<String> = used.brought.iter().filter(|(_, s)| over(s)).map(|(i, _)| i.clone()).collect();
        used.brought.retain(|image, _| !idle.contains(image));
        idle
    }
}

/// Progress of the layers: how many are done, and bytes.
#[derive(Default)]
struct Progress {
    layers: BTreeMap<String, (u64, u64, bool)>,
}

impl Progress {
    fn take(&mut self, line: &Value) {
        let Some(id) = line.get("id").and_then(Value::as_str) else { return };
        if self.layers.len() >= MAX_LAYERS && !self.layers.contains_key(id) {
            return;
        }
        let status = line.get("status").and_then(Value::as_str).unwrap_or_default();
        let layer = self.layers.entry(id.to_owned()).or_default();
        let number = |at: &str| line.pointer(at).and_then(Value::as_u64);
        match status {
            "Downloading" => {
                layer.0 = number("/progressDetail/current").unwrap_or(layer.0);
                layer.1 = number("/progressDetail/total").unwrap_or(layer.1);
            }
            "Pull complete" | "Already exists" => layer.2 = true,
            _ => {}
        }
    }

    fn text(&self) -> String {
        let done = self.layers.values().filter(|l| l.2).count();
        let bytes: u64 = self.layers.values().map(|l| l.0).sum();
        let total: u64 = self.layers.values().map(|l| l.1).sum();
        format!("Pulled {done}/{} layers, {bytes}/{total} bytes", self.layers.len())
    }
}

async fn run_pull(
    engine: &Engine,
    name: &ImageName,
    login: Option<&Login>,
    activity_limit: Duration,
    tell: &watch::Sender<PullState>,
) -> Result<(), StartError> {
    let failed = |e: &EngineError| {
        let message = format!("Failed to pull `{name}`: {e}");
        StartError { recoverable: pull_may_pass(e), message }
    };
    let idle = || {
        let message = format!("Failed to pull `{name}`: no progress for {activity_limit:?}");
        StartError::recoverable(message)
    };
    let path = format!("/images/create?fromImage={}&tag={}", escape(&name.repository), escape(&name.tag));
    let header = login.map(Login::header);
    let headers: Vec<(&str, &str)> = header.iter().map(|h| ("X-Registry-Auth", h.as_str())).collect();
    let opening = engine.open(Method::POST, &path, &headers, None);
    let mut reply = tokio::time::timeout(activity_limit, opening).await.map_err(|_| idle())?.map_err(|e| failed(&e))?;
    let (mut lines, mut progress) = (JsonLines::default(), Progress::default());
    loop {
        let chunk = tokio::time::timeout(activity_limit, reply.chunk()).await.map_err(|_| idle())?;
        let Some(chunk) = chunk.map_err(|e| failed(&e))? else { return Ok(()) };
        for line in lines.feed(&chunk).map_err(|e| failed(&e))? {
            if let Some(why) = line.get("error").and_then(Value::as_str) {
                return Err(failed(&EngineError::Refused { status: 500, message: why.to_owned() }));
            }
            progress.take(&line);
        }
        tell.send_if_modified(|state| {
            *state = PullState::Running(progress.text());
            true
        });
    }
}

/// Whether a failed pull may succeed later: not if the registry says that the
/// image is not there or the login is wrong.
fn pull_may_pass(error: &EngineError) -> bool {
    const FINAL: [&str; 6] =
        ["manifest unknown", "not found", "denied", "unauthorized", "invalid reference", "no basic auth credentials"];
    match error {
        EngineError::Refused { message, .. } => {
            let message = message.to_ascii_lowercase();
            !FINAL.iter().any(|word| message.contains(word))
        }
        _ => true,
    }
}

/// The id of an image that is here.
pub(crate) async fn local(engine: &Engine, name: &ImageName) -> Result<Option<String>, EngineError> {
    match engine.get(&format!("/images/{}/json", escape(&name.to_string()))).await {
        Ok(image) => Ok(image.get("Id").and_then(Value::as_str).map(str::to_owned)),
        Err(e) if e.not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Loads the images of an archive.
pub(crate) async fn load(engine: &Engine, archive: std::fs::File, limit: Duration) -> Result<(), String> {
    let loading = async {
        let mut reply = engine.send_file("/images/load?quiet=1", archive).await.map_err(|e| e.to_string())?;
        let mut lines = JsonLines::default();
        while let Some(chunk) = reply.chunk().await.map_err(|e| e.to_string())? {
            for line in lines.feed(&chunk).map_err(|e| e.to_string())? {
                if let Some(why) = line.get("error").and_then(Value::as_str) {
                    return Err(why.to_owned());
                }
            }
        }
        Ok(())
    };
    tokio::time::timeout(limit, loading).await.unwrap_or_else(|_| Err(format!("it took longer than {limit:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nomad_24547_a_port_is_no_tag() {
        for (text, repository, tag, registry) in [
            ("localhost:5000/app", "localhost:5000/app", "latest", "localhost:5000"),
            ("localhost:5000/app:1", "localhost:5000/app", "1", "localhost:5000"),
            ("https://reg.example.com/a/b:2", "reg.example.com/a/b", "2", "reg.example.com"),
            ("redis", "redis", "latest", "docker.io"),
            ("redis:7", "redis", "7", "docker.io"),
            ("library/redis", "library/redis", "latest", "docker.io"),
            ("localhost/x", "localhost/x", "latest", "localhost"),
        ] {
            let name = ImageName::parse(text).unwrap();
            assert_eq!((name.repository.as_str(), name.tag.as_str()), (repository, tag), "{text}");
            assert_eq!(name.registry(), registry, "{text}");
        }
        let digest = ImageName::parse("r:5/a:1@sha256:ab").unwrap();
        assert_eq!(digest.to_string(), "r:5/a@sha256:ab");
        assert!(!digest.moving() && ImageName::parse("a").unwrap().moving());
        for bad in ["", "a b", "a:", ":x", "a@b", "https://"] {
            assert!(ImageName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_image_is_idle_when_its_last_container_is_gone() {
        let images = Images::default();
        images.in_use("c1", "mine");
        images.brought("mine");
        images.in_use("c2", "mine");
        images.in_use("c3", "foreign");
        images.released("c1");
        images.released("c3");
        assert_eq!(images.take_idle(Duration::ZERO), Vec::<String>::new());
        images.released("c2");
        assert_eq!(images.take_idle(Duration::from_secs(3600)), Vec::<String>::new());
        assert_eq!(images.take_idle(Duration::ZERO), ["mine"]);
        assert_eq!(images.take_idle(Duration::ZERO), Vec::<String>::new());
    }
}
