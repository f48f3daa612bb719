//! Repositories, by the `git` of the host.
//!
//! It clones beside the tasks' directories with an environment of its own, over network protocols only; then the tree is
//! copied to the destination like an archive's.

use super::address::Address;
use super::unpack::{MAX_BYTES, MAX_ENTRIES};
use super::{Cancel, FetchError, Mode, Spot};
use crate::alloc::dir::AllocDir;
use crate::alloc::place::Folder;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::process::Command;

/// Most of what `git` says that is told, bytes.
const MAX_SAID: usize = 2048;
/// Files of a repository count for more than an archive's: its history lies in many.
const ENTRIES: usize = MAX_ENTRIES * 64;
/// Levels of directories.
const MAX_LEVELS: usize = 128;

static CLONES: AtomicU64 = AtomicU64::new(0);

/// Removes the clone whatever happens.
struct Clone(PathBuf);

impl Drop for Clone {
    fn drop(&mut self) {
        // What is left goes with the allocation's directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Fetches a repository.
pub async fn fetch(
    dir: &AllocDir,
    address: &Address,
    mode: Mode,
    target: Spot,
    cancel: Cancel,
) -> Result<(), FetchError> {
    if mode == Mode::File {
        return Err(FetchError::lasting("a repository is a directory; use mode = \"any\" or \"dir\""));
    }
    let known = ["ref", "depth"];
    if let Some(other) = address.options.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(FetchError::lasting(format!("option {other:?} does not act on repositories; use ref or depth")));
    }
    let number = CLONES.fetch_add(1, Ordering::Relaxed);
    let home = Clone(dir.root.join(format!(".clone-{}-{number}", std::process::id())));
    DirBuilder::new().mode(0o700).create(&home.0)?;
    let tree = home.0.join("tree");
    let wanted = address.options.get("ref").filter(|text| !text.is_empty());
    clone(&home.0, &tree, address, wanted.map(String::as_str)).await?;
    let from = if address.subdir.is_empty() { tree } else { inside(&tree, &address.subdir)? };
    let work = move || {
        let mut copy = Copy { cancel, entries: 0, bytes: 0 };
        let copied = copy.directory(&from, &from, &target.folder()?, 0);
        drop(home);
        copied
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| FetchError::passing(error.to_string()))?
}

async fn clone(home: &Path, tree: &Path, address: &Address, wanted: Option<&str>) -> Result<(), FetchError> {
    let place = tree.to_string_lossy().into_owned();
    let mut arguments = vec!["clone", "--quiet"];
    let depth = match address.options.get("depth") {
        None => None,
        Some(text) => match text.parse::<u32>() {
            Ok(depth) if depth > 0 => Some(format!("--depth={depth}")),
            Ok(_) => None,
            Err(_) => return Err(FetchError::lasting(format!("depth {text:?} is no number"))),
        },
    };
    let branch = wanted.map(|wanted| format!("--branch={wanted}"));
    match (&depth, &branch) {
        // A shallow clone holds one branch or tag only.
        (Some(depth), Some(branch)) => arguments.extend([depth.as_str(), branch.as_str()]),
        (Some(depth), None) => arguments.push(depth),
        (None, _) => {}
    }
    arguments.extend(["--", address.url.as_str(), place.as_str()]);
    git(home, home, &arguments).await?;
    if let Some(wanted) = wanted.filter(|_| depth.is_none()) {
        if wanted.starts_with('-') {
            return Err(FetchError::lasting(format!("ref {wanted:?} is no name of a commit, branch or tag")));
        }
        git(home, tree, &["checkout", "--quiet", wanted, "--"]).await?;
    }
    if tree.join(".gitmodules").exists() {
        git(home, tree, &["submodule", "--quiet", "update", "--init", "--recursive"]).await?;
    }
    Ok(())
}

async fn git(home: &Path, at: &Path, arguments: &[&str]) -> Result<(), FetchError> {
    let mut command = Command::new("git");
    command
        .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.ext.allow=never"])
        .args(arguments)
        .current_dir(at)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()))
        .env("HOME", home)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ALLOW_PROTOCOL", "http:https:ssh:git")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = command.output().await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => FetchError::lasting("git must be available and on the PATH of the node; install it"),
        _ => FetchError::passing(format!("git: {error}")),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(output.stderr.get(..MAX_SAID.min(output.stderr.len())).unwrap_or_default());
    Err(FetchError::passing(format!("git {}: {}", arguments.first().unwrap_or(&""), said.trim())))
}

/// A directory of the tree; links on the way are refused.
fn inside(tree: &Path, subdir: &str) -> Result<PathBuf, FetchError> {
    let mut path = tree.to_path_buf();
    for part in subdir.split('/').filter(|part| !part.is_empty()) {
        path.push(part);
        let found = std::fs::symlink_metadata(&path).map(|meta| meta.is_dir());
        if part == ".." || !found.unwrap_or(false) {
            return Err(FetchError::passing(format!("subdir {subdir:?} not found in the repository")));
        }
    }
    Ok(path)
}

struct Copy {
    cancel: Cancel,
    entries: usize,
    bytes: u64,
}

impl Copy {
    fn directory(&mut self, root: &Path, from: &Path, to: &Folder, level: usize) -> Result<(), FetchError> {
        if level > MAX_LEVELS {
            return Err(FetchError::lasting(format!("the repository has more than {MAX_LEVELS} levels")));
        }
        for entry in std::fs::read_dir(from)? {
            self.cancel.check()?;
            self.entries = self.entries.saturating_add(1);
            if self.entries > ENTRIES {
                return Err(FetchError::lasting(format!("the repository has more than {ENTRIES} files")));
            }
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| {
                FetchError::lasting(format!("the repository has a file without a UTF-8 name: {name:?}"))
            })?;
            let (kind, path) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                self.directory(root, &path, &to.sub(&name)?, level.saturating_add(1))?;
            } else if kind.is_symlink() {
                link(root, &path, to, &name)?;
            } else if kind.is_file() {
                self.file(&path, to, &name)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, to: &Folder, name: &str) -> Result<(), FetchError> {
        let mut source = std::fs::File::open(from)?;
        let mode = source.metadata()?.permissions().mode();
        let mut fresh = to.fresh()?;
        self.bytes = self.bytes.saturating_add(std::io::copy(&mut source, &mut fresh.file)?);
        if self.bytes > MAX_BYTES {
            return Err(FetchError::lasting(format!("the repository has more than {MAX_BYTES} bytes")));
        }
        Ok(fresh.keep(to, name, mode, (None, None))?)
    }
}

/// A link is kept if it stays within what is copied: first up, no further than its root, then only down. What is below may
/// be links too, which are held to the same.
fn link(root: &Path, path: &Path, to: &Folder, name: &str) -> Result<(), FetchError> {
    let target = std::fs::read_link(path)?;
    let levels = path.strip_prefix(root).map_or(0, |below| below.components().count()).saturating_sub(1);
    let up = target.components().take_while(|part| matches!(part, Component::ParentDir)).count();
    let down = target.components().skip(up).all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if up > levels || !down {
        let target = target.display();
        return Err(FetchError::lasting(format!("link {name:?} to {target} leads out of the repository")));
    }
    Ok(to.link(name, target.as_os_str())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_within_the_repository() {
        let temp = tempfile::tempdir().unwrap();
        let from = temp.path().join("from");
        std::fs::create_dir_all(from.join("a/b")).unwrap();
        let dir = AllocDir { root: temp.path().join("alloc") };
        std::fs::create_dir(&dir.root).unwrap();
        let to = Folder::root(&dir).unwrap();
        for (target, good) in [
            ("../../x", true),
            ("../c/./d", true),
            ("y", true),
            ("../../../x", false),
            ("/etc", false),
            ("y/../../../..", false),
        ] {
            let path = from.join("a/b/link");
            let _ = std::fs::remove_file(&path);
            symlink(target, &path).unwrap();
            assert_eq!(link(&from, &path, &to, "link").is_ok(), good, "{target}");
        }
    }
}
