//! Connections.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A connection: bytes both ways, in order.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin + fmt::Debug {
    /// The other end's address.
    fn peer_addr(&self) -> io::Result<SocketAddr>;
    /// This end's address.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A connection whose kind does not matter.
pub type BoxStream = Box<dyn Stream>;

/// Takes connections in.
#[async_trait]
pub trait Listener: Send + Sync + fmt::Debug {
    /// The next connection, and who made it. An error may be about that connection alone; the
    /// listener stays usable.
    async fn accept(&self) -> io::Result<(BoxStream, SocketAddr)>;
    /// The address listened on, with the port that was chosen when 0 was asked for.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A network.
#[async_trait]
pub trait Net: Send + Sync + fmt::Debug {
    /// Listens on `addr`; port 0 takes any free one.
    async fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listener>>;
    /// Connects to `host:port`, the host being an address or a name to look up.
    async fn connect(&self, addr: &str) -> io::Result<BoxStream>;
}

/// TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealNet;

impl Stream for TcpStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        TcpStream::peer_addr(self)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpStream::local_addr(self)
    }
}

#[async_trait]
impl Listener for TcpListener {
    async fn accept(&self) -> io::Result<(BoxStream, SocketAddr)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        stream.set_nodelay(true)?;
        Ok((Box::new(stream), peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }
}

#[async_trait]
impl Net for RealNet {
    async fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listener>> {
        match TcpListener::bind(addr).await {
            Ok(listener) => Ok(Box::new(listener)),
            Err(error) => Err(io::Error::new(error.kind(), format!("listen on {addr}: {error}"))),
        }
    }

    async fn connect(&self, addr: &str) -> io::Result<BoxStream> {
        let connected = TcpStream::connect(addr).await;
        let stream = connected.map_err(|error| io::Error::new(error.kind(), format!("connect to {addr}: {error}")))?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn tcp_carries_bytes_both_ways() {
        let listener = RealNet.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buf = [0; 4];
            stream.read_exact(&mut buf).await.unwrap();
            stream.write_all(&buf).await.unwrap();
        });
        let mut stream = RealNet.connect(&addr.to_string()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addr);
        stream.write_all(b"ping").await.unwrap();
        let mut buf = [0; 4];
        stream.read_exact(&mut buf).await.unwrap();
        assert_eq!(&buf, b"ping");
        server.await.unwrap();
    }
}
