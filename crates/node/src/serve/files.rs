//! Files of an allocation: listing, looking, reading, following.

use super::channel::{Channel, Refusal};
use super::frames::{FRAME_BYTES, Origin, StreamFrame};
use super::watch::DirWatch;
use crate::alloc::dir::{HIDDEN, open_within};
use herdsman_model::instant_text;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// Names in one listing at most.
const LIST_LIMIT: usize = 100_000;
/// Time between signs of life on a quiet stream.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Bytes looked at to tell text from other content.
const SNIFF_BYTES: usize = 512;

/// A file as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FileInfo {
    pub name: String,
    pub is_dir: bool,
    pub size: i64,
    pub file_mode: String,
    pub mod_time: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub content_type: String,
}

/// The path without `.` and `..`, or a refusal when it leads out.
fn normal(path: &str) -> Result<String, Refusal> {
    let mut parts: Vec<&str> = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str().unwrap_or_default()),
            Component::ParentDir => {
                if parts.pop().is_none() {
                    return Err(Refusal::failed("Path escapes the alloc directory"));
                }
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(parts.join("/"))
}

/// An error of the file system in the peer's words.
fn fault(verb: &str, root: &Path, path: &str, error: &io::Error) -> Refusal {
    let full = root.join(path);
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::missing(format!("{verb} {}: no such file or directory", full.display())),
        _ => Refusal::failed(format!("{verb} {}: {error}", full.display())),
    }
}

/// The names in a directory, sorted.
pub(crate) fn list(root: &Path, path: &str) -> Result<Vec<FileInfo>, Refusal> {
    let path = normal(path)?;
    let fail = |error: io::Error| fault("open", root, &path, &error);
    let dir = open_within(root, &path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(fail)?;
    let mut infos = Vec::new();
    for entry in rustix::fs::Dir::read_from(&dir).map_err(|e| fail(e.into()))? {
        let entry = entry.map_err(|e| fail(e.into()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        if infos.len() >= LIST_LIMIT {
            return Err(Refusal::failed(format!("{path} has more than {LIST_LIMIT} names")));
        }
        // A name may be gone since the directory was read.
        if let Ok(stat) = rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            infos.push(info(name, &stat, String::new()));
        }
    }
    infos.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(infos)
}

/// One file.
pub(crate) fn stat(root: &Path, path: &str) -> Result<FileInfo, Refusal> {
    let path = normal(path)?;
    let fail = |error: io::Error| fault("stat", root, &path, &error);
    let file = open_within(root, &path, OFlags::PATH).map_err(fail)?;
    let found = rustix::fs::fstat(&file).map_err(|e| fail(e.into()))?;
    let name = path.rsplit('/').next().unwrap_or_default().to_string();
    let content_type = if is_regular(&found) && !is_hidden(root, &file) {
        open_within(root, &path, OFlags::RDONLY | OFlags::NONBLOCK).map(|f| sniff(&File::from(f))).unwrap_or_default()
    } else {
        OCTETS.to_string()
    };
    Ok(info(name, &found, content_type))
}

const OCTETS: &str = "application/octet-stream";

fn sniff(file: &File) -> String {
    let mut buffer = [0; SNIFF_BYTES];
    let count = file.read_at(&mut buffer, 0).unwrap_or(0);
    let bytes = buffer.get(..count).unwrap_or_default();
    let text = !bytes.iter().any(|b| matches!(b, 0..=8 | 11 | 14..=26 | 28..=31));
    if text { "text/plain; charset=utf-8".into() } else { OCTETS.into() }
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn info(name: String, stat: &Stat, content_type: String) -> FileInfo {
    FileInfo {
        name,
        is_dir: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        size: stat.st_size,
        file_mode: go_mode(stat.st_mode),
        mod_time: instant_text(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        content_type,
    }
}

/// File type and permissions in Go's letters.
fn go_mode(mode: u32) -> String {
    let mut text = String::new();
    match FileType::from_raw_mode(mode) {
        FileType::Directory => text.push('d'),
        FileType::Symlink => text.push('L'),
        FileType::Fifo => text.push('p'),
        FileType::Socket => text.push('S'),
        FileType::BlockDevice => text.push('D'),
        FileType::CharacterDevice => text.push_str("Dc"),
        _ => {}
    }
    let mode = Mode::from_raw_mode(mode);
    for (flag, letter) in [(Mode::SUID, 'u'), (Mode::SGID, 'g'), (Mode::SVTX, 't')] {
        if mode.contains(flag) {
            text.push(letter);
        }
    }
    if text.is_empty() {
        text.push('-');
    }
    let bits = mode.bits();
    text.extend((0..9u32).map(|n| if bits & (0o400 >> n) == 0 { '-' } else { b"rwx"[(n % 3) as usize].into() }));
    text
}

/// Whether an open file is inside a task's secret directories, whatever path led there.
fn is_hidden(root: &Path, file: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let (Ok(real), Ok(root)) = (link, root.canonicalize()) else { return true };
    let Ok(inside) = real.strip_prefix(&root) else { return true };
    let second = inside.components().nth(1);
    second.is_some_and(|part| HIDDEN.iter().any(|hidden| part.as_os_str() == *hidden))
}

/// Opens a regular file for reading.
fn open_file(root: &Path, path: &str) -> Result<(File, u64), Refusal> {
    let fail = |error: io::Error| fault("stat", root, path, &error);
    let handle = open_within(root, path, OFlags::PATH).map_err(fail)?;
    if is_hidden(root, &handle) {
        return Err(Refusal::failed(format!("Reading secret file prohibited: {path}")));
    }
    let found = rustix::fs::fstat(&handle).map_err(|e| fail(e.into()))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Refusal::failed(format!("file {path:?} is a directory"))),
        _ => return Err(Refusal::failed(format!("file {path:?} is not a regular file"))),
    }
    // The same file again, now readable: through the handle, so that nothing is resolved twice.
    let file = File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())).map_err(fail)?;
    Ok((file, u64::try_from(found.st_size).unwrap_or(0)))
}

/// Reads at most one frame's worth at `offset`.
fn chunk(file: &File, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; most.min(FRAME_BYTES)];
    let count = file.read_at(&mut buffer, offset)?;
    buffer.truncate(count);
    Ok(buffer)
}

/// Runs blocking file work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Refusal::failed(format!("file work did not finish: {error}")))
}

/// Sends the bytes of a file: `limit` of them from `offset`, all when it is negative.
pub(crate) async fn read_range(
    channel: &mut Channel,
    root: PathBuf,
    path: &str,
    offset: i64,
    limit: i64,
) -> Result<(), Refusal> {
    let path = normal(path)?;
    let (file, _) = blocking(move || open_file(&root, &path)).await??;
    let file = std::sync::Arc::new(file);
    let mut at = u64::try_from(offset).map_err(|_| Refusal::bad("offset must not be negative"))?;
    let mut left = u64::try_from(limit).unwrap_or(u64::MAX);
    while left > 0 {
        let (handle, most) = (std::sync::Arc::clone(&file), usize::try_from(left).unwrap_or(usize::MAX));
        let bytes = blocking(move || chunk(&handle, at, most)).await??;
        if bytes.is_empty() {
            break;
        }
        let count = bytes.len() as u64;
        at = at.saturating_add(count);
        left = left.saturating_sub(count);
        channel.data(bytes).await?;
    }
    Ok(())
}

/// What a file stream is to send.
pub struct FileStream {
    pub root: PathBuf,
    pub path: String,
    pub origin: String,
    pub offset: i64,
    pub limit: i64,
    pub follow: bool,
}

/// Sends a file as frames, and what is added to it.
pub(crate) async fn stream_file(channel: &mut Channel, stream: FileStream) -> Result<(), Refusal> {
    let FileStream { root, path, origin, offset, limit, follow } = stream;
    let origin = Origin::parse(&origin).ok_or_else(|| Refusal::bad("origin must be start or end"))?;
    let path = normal(&path)?;
    if path.is_empty() {
        return Err(Refusal::bad("must provide a file name"));
    }
    let (open_root, open_path) = (root.clone(), path.clone());
    let (file, size) = blocking(move || open_file(&open_root, &open_path)).await??;
    let file = std::sync::Arc::new(file);
    let offset = u64::try_from(offset).map_err(|_| Refusal::bad("offset must not be negative"))?;
    let mut at = match origin {
        Origin::Start => offset,
        Origin::End => size.saturating_sub(offset),
    };
    let mut left = if limit > 0 { limit.unsigned_abs() } else { u64::MAX };
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let parent = real.parent().unwrap_or(&root).to_path_buf();
    let mut watch = if follow { Some(DirWatch::new(&parent)?) } else { None };
    while left > 0 {
        let (handle, most) = (std::sync::Arc::clone(&file), usize::try_from(left).unwrap_or(usize::MAX));
        let (bytes, stat) = blocking(move || (chunk(&handle, at, most), rustix::fs::fstat(&*handle))).await?;
        let (bytes, stat) = (bytes?, stat.map_err(io::Error::from)?);
        if !bytes.is_empty() {
            let count = bytes.len() as u64;
            at = at.saturating_add(count);
            left = left.saturating_sub(count);
            channel.json(&StreamFrame::data(&path, &bytes, at)).await?;
            continue;
        }
        let Some(watch) = &mut watch else { break };
        if stat.st_nlink == 0 {
            channel.json(&StreamFrame::event(&path, "file deleted")).await?;
            break;
        }
        if u64::try_from(stat.st_size).unwrap_or(0) < at {
            at = 0;
            channel.json(&StreamFrame::event(&path, "file truncated")).await?;
            continue;
        }
        if !wait_or_beat(channel, watch.changed()).await? {
            break;
        }
    }
    Ok(())
}

/// Waits for a change, with signs of life meanwhile. Gives false once the reader has gone.
pub(super) async fn wait_or_beat(
    channel: &mut Channel,
    change: impl Future<Output = io::Result<()>>,
) -> Result<bool, Refusal> {
    tokio::pin!(change);
    loop {
        tokio::select! {
            changed = &mut change => {
                changed?;
                return Ok(true);
            }
            message = channel.next() => {
                if !matches!(message, Ok(Some(_))) {
                    return Ok(false);
                }
            }
            () = tokio::time::sleep(HEARTBEAT) => channel.json(&StreamFrame::default()).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("web/secrets")).unwrap();
        std::fs::create_dir_all(temp.path().join("web/local")).unwrap();
        std::fs::write(temp.path().join("web/secrets/token"), "s3cret").unwrap();
        std::fs::write(temp.path().join("web/local/index.html"), "index 0\n").unwrap();
        temp
    }

    #[test]
    fn errors_are_the_peers() {
        let temp = tree();
        let missing = list(temp.path(), "nope").unwrap_err();
        assert_eq!(missing.code, 404);
        assert_eq!(missing.message, format!("open {}/nope: no such file or directory", temp.path().display()));
        assert_eq!(list(temp.path(), "../..").unwrap_err(), Refusal::failed("Path escapes the alloc directory"));
        let dir = open_file(temp.path(), "web/local").unwrap_err();
        assert_eq!(dir.message, r#"file "web/local" is a directory"#);
    }

    #[test]
    fn secrets_are_listed_but_not_read_by_any_path() {
        let temp = tree();
        symlink("../secrets/token", temp.path().join("web/local/link")).unwrap();
        symlink("/web/secrets", temp.path().join("web/local/dir")).unwrap();
        assert_eq!(list(temp.path(), "web/secrets").unwrap().len(), 1);
        for path in ["web/secrets/token", "web/local/link", "web/local/dir/token"] {
            let refusal = open_file(temp.path(), path).unwrap_err();
            assert_eq!(refusal.message, format!("Reading secret file prohibited: {path}"));
        }
        assert!(open_file(temp.path(), "web/local/index.html").is_ok());
    }

    #[test]
    fn infos_have_the_peers_form() {
        let temp = tree();
        let found = stat(temp.path(), "/web/local/index.html").unwrap();
        assert_eq!((found.name.as_str(), found.size, found.is_dir), ("index.html", 8, false));
        assert_eq!(found.content_type, "text/plain; charset=utf-8");
        assert!(found.file_mode.starts_with("-rw"), "{}", found.file_mode);
        let dir = stat(temp.path(), "web/local").unwrap();
        assert_eq!((dir.is_dir, dir.content_type.as_str()), (true, OCTETS));
        assert_eq!(go_mode(0o041_777), "dtrwxrwxrwx");
        assert_eq!(go_mode(0o140_666), "Srw-rw-rw-");
    }

    #[test]
    fn times_are_rfc_3339() {
        for (seconds, nanos, text) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (951_782_400, 0, "2000-02-29T00:00:00Z"),
            (1_796_085_335, 448_402_390, "2026-12-01T00:35:35.44840239Z"),
            (-1, 0, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(instant_text(seconds, nanos), text);
        }
    }
}
