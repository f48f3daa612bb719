//! Who the node is: an id and a secret, made once and kept in the state directory.

use crate::config::NodeError;
use herdsman_model::NodeId;
use herdsman_world::World;
use std::path::Path;

/// Longest content of an identity file, bytes.
const FILE_LIMIT: u64 = 256;

/// Id and secret of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub id: NodeId,
    /// Proves to the servers that whoever speaks for the node is the node.
    pub secret: NodeId,
}

/// Reads the node's identity, or makes it on the first start.
pub fn load_or_make(world: &World, state_dir: &Path) -> Result<Identity, NodeError> {
    Ok(Identity { id: one(world, &state_dir.join("client-id"))?, secret: one(world, &state_dir.join("secret-id"))? })
}

fn one(world: &World, path: &Path) -> Result<NodeId, NodeError> {
    let io = |what, error| NodeError::Io { what, path: path.to_path_buf(), error };
    if world.disk.exists(path).map_err(|e| io("look for", e))? {
        let bytes = world.disk.read(path, FILE_LIMIT).map_err(|e| io("read", e))?;
        let text = String::from_utf8_lossy(&bytes);
        match text.trim().parse() {
            Ok(id) => return Ok(id),
            Err(error) => {
                let error = format!("{error}; remove the file to make the node a new one, after draining it");
                return Err(io("read", std::io::Error::new(std::io::ErrorKind::InvalidData, error)));
            }
        }
    }
    let id = NodeId(world.rng.uuid());
    world.disk.replace(path, id.to_string().as_bytes()).map_err(|e| io("write", e))?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_a_restart() {
        let world = World::simulated(1);
        world.disk.create_dir_all(Path::new("/state")).unwrap();
        let first = load_or_make(&world, Path::new("/state")).unwrap();
        assert_eq!(load_or_make(&world, Path::new("/state")).unwrap(), first);
        assert_ne!(first.id, first.secret);
        world.disk.replace(Path::new("/state/client-id"), b"nonsense").unwrap();
        let error = load_or_make(&world, Path::new("/state")).unwrap_err().to_string();
        assert!(error.contains("client-id") && error.contains("remove the file"), "{error}");
    }
}
