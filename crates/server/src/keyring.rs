//! The keys that identities are signed with. Their public halves are what `/.well-known/jwks.json` shows, which clients of
//! the peer wait for when a server starts.
//!
//! One file in the server's directory, replaced whole with every change, readable by the agent's user only.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ed25519_dalek::SigningKey;
use herdsman_world::Disk;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keys kept at most: a further rotation is refused until old ones are removed.
pub const MAX_KEYS: usize = 64;

/// The largest file of keys, bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Name of the file.
const FILE: &str = "keyring.json";

/// Version of the file's format.
const VERSION: u32 = 1;

/// What may be known about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    pub id: String,
    /// New identities are signed with it; exactly one key is active.
    pub active: bool,
    /// Nanoseconds since the Unix epoch.
    pub create_time: i64,
    /// Index of the tables when it was made.
    pub create_index: u64,
    /// The Ed25519 public key.
    pub public: [u8; 32],
}

/// A key as it is stored.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    id: String,
    active: bool,
    create_time: i64,
    create_index: u64,
    /// The Ed25519 seed, base64.
    seed: String,
}

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    keys: Vec<Stored>,
}

/// Why a key was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error("root key not found")]
    Unknown,
    #[error("active root key cannot be deleted - call rotate first")]
    Active,
    #[error("the keyring cannot be written: {0}")]
    Disk(io::Error),
}

/// The keys of a server.
pub struct Keyring {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    keys: Mutex<Vec<Stored>>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring({} keys)", self.lock().len())
    }
}

/// Secrets come from the operating system, never from the world's stream.
fn random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| io::Error::other(format!("no randomness: {error}")))
}

fn damaged(path: &Path, what: impl std::fmt::Display) -> io::Error {
    let text =
        format!("{} is damaged: {what}; restore it from a backup, or remove it to make new keys", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Keyring {
    /// Opens the keyring in a directory; makes the first key when there is none. Blocks on the disk.
    ///
    /// # Errors
    /// The file is damaged, or disk or the source of randomness fail.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, now: i64) -> io::Result<Keyring> {
        disk.create_dir_all(dir)?;
        let path = dir.join(FILE);
        let keys = if disk.exists(&path)? {
            let file: File =
                serde_json::from_slice(&disk.read(&path, MAX_FILE_BYTES)?).map_err(|error| damaged(&path, error))?;
            if file.version != VERSION {
                return Err(damaged(&path, format!("version {} is not known", file.version)));
            }
            for key in &file.keys {
                seed_of(key).map_err(|what| damaged(&path, what))?;
            }
            file.keys
        } else {
            Vec::new()
        };
        let ring = Keyring { disk, path, keys: Mutex::new(keys) };
        if ring.lock().is_empty() {
            ring.rotate(now, 0)?;
        }
        Ok(ring)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stored>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, keys: &[Stored]) -> io::Result<()> {
        let file = File { version: VERSION, keys: keys.to_vec() };
        self.disk.replace(&self.path, &serde_json::to_vec(&file).map_err(io::Error::other)?)
    }

    /// The keys, newest first.
    pub fn keys(&self) -> Vec<KeyInfo> {
        self.lock().iter().rev().filter_map(info_of).collect()
    }

    /// Makes a new active key; those before stay to check what they signed. Blocks on the disk.
    ///
    /// # Errors
    /// There are [`MAX_KEYS`] already, or disk or the source of randomness fail.
    pub fn rotate(&self, now: i64, index: u64) -> io::Result<KeyInfo> {
        let (mut seed, mut id) = ([0u8; 32], [0u8; 16]);
        random(&mut seed)?;
        random(&mut id)?;
        let key = Stored {
            id: herdsman_model::EvalId(id).to_string(),
            active: true,
            create_time: now,
            create_index: index,
            seed: BASE64_STANDARD.encode(seed),
        };
        let info = info_of(&key).ok_or_else(|| io::Error::other("a new key cannot be read back"))?;
        let mut keys = self.lock();
        if keys.len() >= MAX_KEYS {
            return Err(io::Error::other(format!("there are {MAX_KEYS} keys already: remove old ones first")));
        }
        let mut all: Vec<Stored> = keys.iter().map(|key| Stored { active: false, ..key.clone() }).collect();
        all.push(key);
        self.write(&all)?;
        *keys = all;
        Ok(info)
    }

    /// Removes a key that is not active. Blocks on the disk.
    ///
    /// # Errors
    /// There is no such key, it is active, or the disk fails.
    pub fn remove(&self, id: &str) -> Result<(), RemoveError> {
        let mut keys = self.lock();
        let found = keys.iter().find(|key| key.id == id).ok_or(RemoveError::Unknown)?;
        if found.active {
            return Err(RemoveError::Active);
        }
        let left: Vec<Stored> = keys.iter().filter(|key| key.id != id).cloned().collect();
        self.write(&left).map_err(RemoveError::Disk)?;
        *keys = left;
        Ok(())
    }
}

fn seed_of(key: &Stored) -> Result<[u8; 32], String> {
    let bytes = BASE64_STANDARD.decode(&key.seed).map_err(|error| format!("key {}: {error}", key.id))?;
    bytes.try_into().map_err(|_| format!("key {} is not 32 bytes long", key.id))
}

fn info_of(key: &Stored) -> Option<KeyInfo> {
    let public = SigningKey::from_bytes(&seed_of(key).ok()?).verifying_key().to_bytes();
    Some(KeyInfo {
        id: key.id.clone(),
        active: key.active,
        create_time: key.create_time,
        create_index: key.create_index,
        public,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_outlive_a_restart() {
        let disk = herdsman_world::World::simulated(1).disk;
        let dir = Path::new("/keys");
        let ring = Keyring::open(Arc::clone(&disk), dir, 1).unwrap();
        let first = ring.keys().remove(0);
        let second = ring.rotate(2, 7).unwrap();
        assert_ne!(first.id, second.id);
        assert!(matches!(ring.remove(&second.id), Err(RemoveError::Active)));
        assert!(matches!(ring.remove("nope"), Err(RemoveError::Unknown)));
        drop(ring);
        let ring = Keyring::open(Arc::clone(&disk), dir, 3).unwrap();
        assert_eq!(ring.keys(), [second.clone(), KeyInfo { active: false, ..first.clone() }]);
        ring.remove(&first.id).unwrap();
        assert_eq!(Keyring::open(disk, dir, 4).unwrap().keys(), [second]);
    }

    #[test]
    fn a_damaged_file_is_told_and_kept() {
        let disk = herdsman_world::World::simulated(1).disk;
        let dir = Path::new("/keys");
        disk.create_dir_all(dir).unwrap();
        disk.replace(&dir.join(FILE), b"{\"version\":1,\"keys\":[{\"id\":").unwrap();
        let error = Keyring::open(Arc::clone(&disk), dir, 1).unwrap_err();
        assert!(error.to_string().contains("keyring.json is damaged"), "{error}");
        assert!(disk.exists(&dir.join(FILE)).unwrap());
    }
}
