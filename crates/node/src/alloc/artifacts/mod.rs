//! Artifacts: files and archives fetched before the first start of a task.
//!
//! A source is read in the form of the peer's getter (`git::https://host/repo//sub?ref=v1`); what comes is written by
//! [`super::place`] only, so nothing lands outside of the task's directory and the shared one. Every failure may be tried
//! again under the restart policy, except what no attempt could change. Rules: `compat/lifecycle.md` section 11.

mod address;
mod checksum;
mod git;
mod http;
mod unpack;

use super::dir::AllocDir;
use super::hooks::{Failure, FileHooks};
use super::place::{Folder, Spot, locate};
use address::{Address, Getter};
use checksum::Checksum;
use futures::StreamExt;
use herdsman_model::{Artifact, Task, TaskFact};
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Artifacts of a task that are fetched at once.
const PARALLEL: usize = 3;
/// Longest time for one artifact.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Largest download, bytes.
const MAX_BYTES: u64 = 100_000_000_000;
/// Permissions of a downloaded file that is no archive's.
const FILE_MODE: u32 = 0o644;

/// Why an artifact is not there, and whether another attempt may help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchError {
    why: String,
    recoverable: bool,
}

impl FetchError {
    /// Another attempt may help.
    fn passing(why: impl Into<String>) -> FetchError {
        FetchError { why: why.into(), recoverable: true }
    }

    /// No attempt would do better.
    fn lasting(why: impl Into<String>) -> FetchError {
        FetchError { why: why.into(), recoverable: false }
    }
}

impl From<std::io::Error> for FetchError {
    fn from(error: std::io::Error) -> FetchError {
        FetchError::passing(error.to_string())
    }
}

/// Set once nobody waits for the artifacts any more.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    fn check(&self) -> std::io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(std::io::Error::new(std::io::ErrorKind::Interrupted, "the task is no longer wanted"));
        }
        Ok(())
    }
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Fetches every artifact of a task.
pub async fn fetch_all(dir: &AllocDir, task: &Task, files: &FileHooks) -> Result<(), Failure> {
    let guard = CancelOnDrop(Cancel::default());
    let jobs: Vec<_> = task
        .artifacts
        .iter()
        .map(|artifact| {
            let source = files.env.fill(&artifact.getter_source);
            let work = fetch(dir, task, files, artifact, guard.0.clone());
            async move {
                let result = tokio::time::timeout(TIMEOUT, work).await;
                let late = || FetchError::passing(format!("it took longer than {} s", TIMEOUT.as_secs()));
                result.unwrap_or_else(|_| Err(late())).map_err(|error| (source, error))
            }
        })
        .collect();
    let mut results = futures::stream::iter(jobs).buffer_unordered(PARALLEL);
    while let Some(result) = results.next().await {
        if let Err((source, FetchError { why, recoverable })) = result {
            let source = address::without_password(&source);
            let error = format!("failed to download artifact {source:?}: {why}");
            return Err((TaskFact::FailedArtifactDownload { error }, recoverable));
        }
    }
    Ok(())
}

/// What of a source goes where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A file into the destination, an archive unpacked there.
    Any,
    /// The destination is the file.
    File,
    /// The destination is a directory for what an archive holds.
    Dir,
}

async fn fetch(
    dir: &AllocDir,
    task: &Task,
    files: &FileHooks,
    artifact: &Artifact,
    cancel: Cancel,
) -> Result<(), FetchError> {
    let mut address = Address::read(&files.env.fill(&artifact.getter_source)).map_err(FetchError::lasting)?;
    for (key, value) in artifact.getter_options.iter() {
        address.options.insert(files.env.fill(key), files.env.fill(value));
    }
    let mode = match artifact.getter_mode.as_str() {
        "" | "any" => Mode::Any,
        "file" => Mode::File,
        "dir" => Mode::Dir,
        other => return Err(FetchError::lasting(format!("mode {other:?} is none of any, file and dir"))),
    };
    let text = files.host.fill(&artifact.relative_dest);
    let text = if text.is_empty() { "local/" } else { text.as_str() };
    let target = locate(dir, &task.name, text).map_err(FetchError::lasting)?;
    let owner = match task.user.as_str() {
        user if artifact.chown && !user.is_empty() => {
            let user = herdsman_drivers::user_ids(&files.env.fill(user)).await.map_err(FetchError::lasting)?;
            Some((Some(user.0), Some(user.1)))
        }
        _ => None,
    };
    let place = target.clone();
    match address.getter {
        Getter::Git => git::fetch(dir, &address, mode, target, cancel).await?,
        Getter::Http => {
            let headers = artifact.getter_headers.iter().map(|(k, v)| (files.env.fill(k), files.env.fill(v))).collect();
            download(dir, address, headers, artifact.getter_insecure, mode, target, cancel).await?;
        }
    }
    let Some(owner) = owner else { return Ok(()) };
    let given = tokio::task::spawn_blocking(move || place.hand_over(owner)).await;
    given
        .map_err(|error| FetchError::passing(error.to_string()))?
        .map_err(|error| FetchError::passing(format!("the files cannot be given to the task's user: {error}")))
}

async fn download(
    dir: &AllocDir,
    mut address: Address,
    headers: Vec<(String, String)>,
    insecure: bool,
    mode: Mode,
    target: Spot,
    cancel: Cancel,
) -> Result<(), FetchError> {
    let sum = address.options.remove("checksum");
    let kind = address.options.remove("archive");
    let renamed = address.options.remove("filename");
    let name = match renamed {
        Some(name) => name,
        None => address.file_name(),
    };
    let kind = unpack::kind(kind.as_deref(), &name).map_err(FetchError::lasting)?;
    let client = http::Client { headers, insecure };
    let sum = match sum {
        Some(text) => Some(Checksum::find(&text, &name, &client).await?),
        None => None,
    };
    // Downloads wait in the root of the allocation, which tasks cannot write to; a file that is no archive waits beside
    // its place, to be moved there at once.
    let (folder, name) = match (kind, mode) {
        (None, Mode::Dir) => {
            return Err(FetchError::lasting(format!("mode is dir, but {name:?} is no archive; use mode = \"file\"")));
        }
        (None, Mode::Any) => {
            if name.is_empty() {
                return Err(FetchError::lasting("the source names no file; use mode = \"file\" and a destination"));
            }
            let target = target.clone().join(&name);
            target.parent()?
        }
        (None, Mode::File) => target.parent()?,
        (Some(_), _) => (Folder::root(dir)?, String::new()),
    };
    let mut fresh = folder.fresh()?;
    let file = fresh.file.try_clone()?;
    client.download(&address.request_url(), file, MAX_BYTES, &cancel).await?;
    let shown = if kind.is_none() && mode == Mode::Any { target.path().join(&name) } else { target.path() };
    let work = move || -> Result<(), FetchError> {
        fresh.file.seek(SeekFrom::Start(0))?;
        if let Some(sum) = sum {
            sum.verify(&mut fresh.file, &shown.display().to_string(), &cancel)?;
            fresh.file.seek(SeekFrom::Start(0))?;
        }
        match kind {
            Some(kind) => unpack::unpack(kind, &fresh.file, &target, mode, &cancel),
            None => Ok(fresh.keep(&folder, &name, FILE_MODE, (None, None))?),
        }
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| FetchError::passing(error.to_string()))?
}
