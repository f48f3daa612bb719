//! Data directories: where they are, and whether they are ours.

use std::io;
use std::path::{Path, PathBuf};

/// Files by which a data directory of the peer is known, below `data_dir`.
const PEERS_FILES: &[&str] = &["server/raft/raft.db", "server/serf/snapshot", "client/state.db", "server/raft/wal"];

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    #[error(
        "{path} was written by another orchestrator ({file}), and nothing was changed in it. Its data cannot be read: give this agent a data_dir of its own, start it beside the old one, and register the same job files with it"
    )]
    Peers { path: PathBuf, file: &'static str },
    #[error("{what} {path}: {error}; it must be a directory this user may write to")]
    Io { what: &'static str, path: PathBuf, error: io::Error },
    #[error("data_dir must be an absolute path, found {0:?}")]
    Relative(PathBuf),
    #[error(
        "data_dir is not set; say where the agent keeps its data (-data-dir or data_dir in a configuration file), or use -dev"
    )]
    Missing,
}

/// The data directory of a development agent, removed when it is dropped.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Temporary {
    /// Makes a new one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(unique: u64) -> Result<Temporary, DirError> {
        let path = std::env::temp_dir().join(format!("herdsman-dev-{}-{unique:08x}", std::process::id()));
        make(&path)?;
        Ok(Temporary(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Refuses a data directory that the peer wrote; changes nothing.
///
/// # Errors
/// The directory is the peer's.
pub fn refuse_peers(data_dir: &Path) -> Result<(), DirError> {
    match PEERS_FILES.iter().find(|f| data_dir.join(f).exists()) {
        Some(file) => Err(DirError::Peers { path: data_dir.to_path_buf(), file }),
        None => Ok(()),
    }
}

/// Makes a directory that only this user may read.
///
/// # Errors
/// It cannot be made.
pub fn make(path: &Path) -> Result<(), DirError> {
    use std::os::unix::fs::DirBuilderExt;
    let error = |error| DirError::Io { what: "creating", path: path.to_path_buf(), error };
    if path.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o711).create(path).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_of_the_peer_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refuse_peers(folder.path()).is_ok());
        std::fs::create_dir_all(folder.path().join("server/raft")).unwrap();
        std::fs::write(folder.path().join("server/raft/raft.db"), "x").unwrap();
        let message = refuse_peers(folder.path()).unwrap_err().to_string();
        assert!(message.contains("nothing was changed"), "{message}");
        assert_eq!(std::fs::read(folder.path().join("server/raft/raft.db")).unwrap(), b"x");
    }
}
