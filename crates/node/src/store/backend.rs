//! redb over the [`herdsman_world::Disk`] parameter.

use herdsman_world::{DiskFile, OpenMode, World};
use redb::{Database, StorageBackend};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Damaged(redb::DatabaseError),
}

#[derive(Debug)]
struct Backend(Arc<dyn DiskFile>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

pub(super) fn open(world: &World, path: &Path, cache_bytes: usize) -> Result<Database, OpenError> {
    let file = world.disk.open(path, OpenMode::CreateOrOpen).map_err(OpenError::Io)?;
    if let Some(dir) = path.parent() {
        world.disk.sync_dir(dir).map_err(OpenError::Io)?;
    }
    let open = || Database::builder().set_cache_size(cache_bytes).create_with_backend(Backend(file));
    // redb takes for granted that a file is as long as its header says.
    let opened = catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|_| {
        let text = "the file does not agree with its own header".to_string();
        Err(redb::DatabaseError::Storage(redb::StorageError::Corrupted(text)))
    });
    opened.map_err(|error| match error {
        redb::DatabaseError::Storage(redb::StorageError::Io(error)) => match error.kind() {
            // A file that ends too early or is no database is damaged, not out of reach.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                OpenError::Damaged(redb::DatabaseError::Storage(redb::StorageError::Io(error)))
            }
            _ => OpenError::Io(error),
        },
        other => OpenError::Damaged(other),
    })
}
