//! Telling systemd how the agent stands (`Type=notify`): datagrams to the socket in `NOTIFY_SOCKET`.

use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The agent is ready.
pub const READY: &str = "READY=1";
/// The agent reads its configuration again.
pub const RELOADING: &str = "RELOADING=1";
/// The agent is ending.
pub const STOPPING: &str = "STOPPING=1";

/// Sends a state to systemd, when it asked for states. That it cannot be told is no reason to fail.
pub fn notify(state: &str) {
    let Ok(path) = std::env::var("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let sent = match path.strip_prefix('@') {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(name).and_then(|address| socket.send_to_addr(state.as_bytes(), &address))
        }
        None => socket.send_to(state.as_bytes(), &path),
    };
    if let Err(error) = sent {
        tracing::warn!(target: "agent", %error, path, "systemd could not be told");
    }
}
