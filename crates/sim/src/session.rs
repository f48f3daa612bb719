//! The node's side of a session, frame by frame.

use futures::{SinkExt, StreamExt};
use herdsman_model::Node;
use herdsman_proto::{
    Hello, KnownAlloc, MAGIC, MAX_FRAME_BYTES, NodeFrame, NodeMessage, Purpose, SESSION_VERSION, ServerFrame,
    ServerMessage,
};
use herdsman_world::{BoxStream, World};
use prost::Message;
use std::io;
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// A connection to a server.
pub type Frames = Framed<BoxStream, LengthDelimitedCodec>;

/// Opens a connection for a purpose.
///
/// # Errors
/// The server cannot be reached.
pub async fn dial(world: &World, addr: SocketAddr, purpose: Purpose) -> io::Result<Frames> {
    let mut stream = world.net.connect(&addr.to_string()).await?;
    stream.write_all(&MAGIC).await?;
    stream.write_all(&[purpose as u8]).await?;
    let codec = LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec();
    Ok(Framed::new(stream, codec))
}

/// Says something. The server may have closed the session; the next read tells.
pub async fn say(frames: &mut Frames, message: NodeMessage) {
    let frame = NodeFrame { message: Some(message) };
    let _ = frames.send(bytes::Bytes::from(frame.encode_to_vec())).await;
}

/// What the server says next; none when the session is over.
pub async fn hear(frames: &mut Frames) -> Option<ServerMessage> {
    let frame = frames.next().await?.ok()?;
    ServerFrame::decode(frame).ok()?.message
}

/// How a node introduces itself, with the allocations it has.
pub fn hello(node: &Node, known: Vec<KnownAlloc>) -> Hello {
    Hello {
        version: SESSION_VERSION,
        // A node has text keys only, so it has a JSON form.
        node_json: serde_json::to_vec(node).unwrap_or_default(),
        known,
        region: "global".into(),
        send_time: 1,
    }
}
