//! Messages between our own processes: node sessions and bulk channels.
//!
//! Every message is a tagged `prost` record, so a field may be added without breaking an older reader. Nouns travel
//! inside as JSON by field name (`*_json`), the one encoding whose compatibility the product already promises.
//!
//! Architecture invariant: nothing here does IO; framing (a 4-byte big-endian length before each message) is the
//! reader's and writer's.

pub mod bulk;
pub mod session;

pub use bulk::*;
pub use session::*;

/// Version of the node session protocol. A peer of another major version is refused with a message that says so.
pub const SESSION_VERSION: u32 = 1;

/// The largest single frame of a session or bulk channel, bytes.
pub const MAX_FRAME_BYTES: usize = 32 * 1024 * 1024;

/// First bytes of every connection to a server's RPC port.
pub const MAGIC: [u8; 4] = *b"HRDS";

/// What a connection to the RPC port is for: the byte after [`MAGIC`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A node's control stream ([`session`]).
    NodeControl = 1,
    /// A bulk channel that a node dialled on the server's request ([`bulk`]).
    NodeBulk = 2,
    /// Log replication between servers.
    Consensus = 3,
    /// A request forwarded from one server or client agent to another server.
    Forward = 4,
}

impl TryFrom<u8> for Purpose {
    type Error = UnknownPurpose;
    fn try_from(byte: u8) -> Result<Self, UnknownPurpose> {
        Ok(match byte {
            1 => Purpose::NodeControl,
            2 => Purpose::NodeBulk,
            3 => Purpose::Consensus,
            4 => Purpose::Forward,
            other => return Err(UnknownPurpose(other)),
        })
    }
}

/// A connection for something this version does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("connection purpose {0} is not known to this version")]
pub struct UnknownPurpose(pub u8);
