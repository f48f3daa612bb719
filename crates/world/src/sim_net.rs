//! A network in memory, with latency, cuts and resets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use crate::net::{BoxStream, Listener, Net, Stream};
use crate::rng::{Rng, SeededRng};

/// Bytes on their way in one direction of a connection; beyond it a writer waits.
const WINDOW: usize = 256 * 1024;
/// Connections that wait to be accepted; beyond it a connection is refused.
const BACKLOG: usize = 128;
/// How long a connection attempt over a cut link waits before it fails.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first port given to a connection's own end or to a listener on port 0.
const FIRST_FREE_PORT: u16 = 32_768;

struct Hub {
    listeners: BTreeMap<SocketAddr, mpsc::Sender<(SimStream, SocketAddr)>>,
    next_port: u16,
    cut: BTreeSet<(IpAddr, IpAddr)>,
    latency: (Duration, Duration),
    pipes: Vec<Weak<Pipe>>,
}

/// The network that simulated hosts share. Clones are the same network.
#[derive(Clone)]
pub struct SimHub {
    hub: Arc<Mutex<Hub>>,
    rng: Arc<SeededRng>,
}

impl fmt::Debug for SimHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimHub")
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimHub {
    /// A network without hosts and without latency.
    #[must_use]
    pub fn new(seed: u64) -> SimHub {
        SimHub {
            hub: Arc::new(Mutex::new(Hub {
                listeners: BTreeMap::new(),
                next_port: FIRST_FREE_PORT,
                cut: BTreeSet::new(),
                latency: (Duration::ZERO, Duration::ZERO),
                pipes: Vec::new(),
            })),
            rng: Arc::new(SeededRng::from_seed(crate::rng::mix(seed))),
        }
    }

    /// The network as the host at `ip` sees it.
    #[must_use]
    pub fn host(&self, ip: IpAddr) -> SimNet {
        SimNet { hub: self.clone(), ip }
    }

    /// Every message takes between `least` and `most` from now on; order within a connection stays.
    pub fn set_latency(&self, least: Duration, most: Duration) {
        locked(&self.hub).latency = (least, most.max(least));
    }

    /// Cuts the link from `from` to `to`, one way. Bytes wait, as TCP's would be sent again; new
    /// connections between the two time out.
    pub fn cut(&self, from: IpAddr, to: IpAddr) {
        locked(&self.hub).cut.insert((from, to));
    }

    /// Cuts every link between the two groups, both ways.
    pub fn partition(&self, one: &[IpAddr], other: &[IpAddr]) {
        for a in one {
            for b in other {
                self.cut(*a, *b);
                self.cut(*b, *a);
            }
        }
    }

    /// Every link works again; what waited arrives.
    pub fn heal(&self) {
        let mut hub = locked(&self.hub);
        hub.cut.clear();
        let pipes = hub.live_pipes();
        drop(hub);
        pipes.iter().for_each(|pipe| pipe.wake());
    }

    /// Breaks every connection between the two hosts.
    pub fn reset_between(&self, a: IpAddr, b: IpAddr) {
        self.reset(|from, to| (from == a && to == b) || (from == b && to == a));
    }

    /// The host stops: its listeners close, its connections break.
    pub fn stop_host(&self, ip: IpAddr) {
        locked(&self.hub).listeners.retain(|addr, _| addr.ip() != ip);
        self.reset(|from, to| from == ip || to == ip);
    }

    fn reset(&self, which: impl Fn(IpAddr, IpAddr) -> bool) {
        let pipes = locked(&self.hub).live_pipes();
        for pipe in pipes.iter().filter(|pipe| which(pipe.from.ip(), pipe.to.ip())) {
            locked(&pipe.state).reset = true;
            pipe.wake();
        }
    }

    fn is_cut(&self, from: IpAddr, to: IpAddr) -> bool {
        locked(&self.hub).cut.contains(&(from, to))
    }

    fn delay(&self) -> Duration {
        let (least, most) = locked(&self.hub).latency;
        let spread = u64::try_from((most - least).as_nanos()).unwrap_or(u64::MAX);
        least + Duration::from_nanos(self.rng.below(spread.saturating_add(1)))
    }

    fn free_port(&self) -> u16 {
        let mut hub = locked(&self.hub);
        let port = hub.next_port;
        hub.next_port = port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        port
    }
}

impl Hub {
    fn live_pipes(&mut self) -> Vec<Arc<Pipe>> {
        self.pipes.retain(|pipe| pipe.strong_count() > 0);
        self.pipes.iter().filter_map(Weak::upgrade).collect()
    }
}

/// One direction of a connection.
struct Pipe {
    hub: SimHub,
    from: SocketAddr,
    to: SocketAddr,
    state: Mutex<PipeState>,
}

#[derive(Default)]
struct PipeState {
    queue: VecDeque<(Instant, Vec<u8>, usize)>,
    in_flight: usize,
    /// No more will be written.
    closed: bool,
    /// The reader has gone.
    unread: bool,
    reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake(&self) {
        let mut state = locked(&self.state);
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

/// The network as one simulated host sees it.
#[derive(Clone, Debug)]
pub struct SimNet {
    hub: SimHub,
    ip: IpAddr,
}

#[async_trait]
impl Net for SimNet {
    async fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let ip = if addr.ip().is_unspecified() { self.ip } else { addr.ip() };
        if ip != self.ip {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                format!("listen on {addr}: this host is {}", self.ip),
            ));
        }
        let port = if addr.port() == 0 { self.hub.free_port() } else { addr.port() };
        let addr = SocketAddr::new(ip, port);
        let (tx, rx) = mpsc::channel(BACKLOG);
        let mut hub = locked(&self.hub.hub);
        if hub.listeners.get(&addr).is_some_and(|other| !other.is_closed()) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("listen on {addr}: address in use")));
        }
        hub.listeners.insert(addr, tx);
        Ok(Box::new(SimListener { addr, incoming: tokio::sync::Mutex::new(rx) }))
    }

    async fn connect(&self, addr: &str) -> io::Result<BoxStream> {
        let to: SocketAddr = addr.parse().map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("connect to {addr}: simulated hosts have addresses, no names"),
            )
        })?;
        let delay = self.hub.delay() + self.hub.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.hub.is_cut(self.ip, to.ip()) || self.hub.is_cut(to.ip(), self.ip) {
            tokio::time::sleep(CONNECT_TIMEOUT).await;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("connect to {addr}: timed out")));
        }
        let from = SocketAddr::new(self.ip, self.hub.free_port());
        let (here, there) = self.hub.pair(from, to);
        let listener = locked(&self.hub.hub).listeners.get(&to).cloned();
        match listener.map(|listener| listener.try_send((there, from))) {
            Some(Ok(())) => Ok(Box::new(here)),
            _ => {
                Err(io::Error::new(io::ErrorKind::ConnectionRefused, format!("connect to {addr}: connection refused")))
            }
        }
    }
}

impl SimHub {
    fn pair(&self, from: SocketAddr, to: SocketAddr) -> (SimStream, SimStream) {
        let pipe = |from, to| Arc::new(Pipe { hub: self.clone(), from, to, state: Mutex::default() });
        let (there, back) = (pipe(from, to), pipe(to, from));
        let mut hub = locked(&self.hub);
        hub.live_pipes();
        hub.pipes.extend([Arc::downgrade(&there), Arc::downgrade(&back)]);
        let stream = |read: &Arc<Pipe>, write: &Arc<Pipe>| SimStream {
            read: Arc::clone(read),
            write: Arc::clone(write),
            wait: None,
        };
        (stream(&back, &there), stream(&there, &back))
    }
}

struct SimListener {
    addr: SocketAddr,
    incoming: tokio::sync::Mutex<mpsc::Receiver<(SimStream, SocketAddr)>>,
}

impl fmt::Debug for SimListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimListener({})", self.addr)
    }
}

#[async_trait]
impl Listener for SimListener {
    async fn accept(&self) -> io::Result<(BoxStream, SocketAddr)> {
        match self.incoming.lock().await.recv().await {
            Some((stream, from)) => Ok((Box::new(stream), from)),
            None => Err(io::Error::new(
                io::ErrorKind::NotConnected,
                format!("the simulated host of {} has stopped", self.addr),
            )),
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

struct SimStream {
    read: Arc<Pipe>,
    write: Arc<Pipe>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl fmt::Debug for SimStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStream({} to {})", self.write.from, self.write.to)
    }
}

impl Stream for SimStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.write.to)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.write.from)
    }
}

impl AsyncRead for SimStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let pipe = Arc::clone(&self.read);
        let cut = pipe.hub.is_cut(pipe.from.ip(), pipe.to.ip());
        let mut state = locked(&pipe.state);
        if state.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let arrives = state.queue.front().map(|(at, ..)| *at);
        state.reader = Some(cx.waker().clone());
        match arrives {
            _ if cut => Poll::Pending,
            None if state.closed => Poll::Ready(Ok(())),
            None => Poll::Pending,
            Some(at) if at > Instant::now() => {
                drop(state);
                let mut sleep = Box::pin(tokio::time::sleep_until(at));
                let poll = sleep.as_mut().poll(cx);
                self.wait = Some(sleep);
                if poll.is_ready() {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
            Some(_) => {
                let mut taken = 0;
                if let Some((_, data, done)) = state.queue.front_mut()
                    && let Some(rest) = data.get(*done..)
                {
                    let piece = rest.get(..buf.remaining()).unwrap_or(rest);
                    buf.put_slice(piece);
                    taken = piece.len();
                    *done += taken;
                    if *done == data.len() {
                        state.queue.pop_front();
                    }
                }
                state.in_flight -= taken;
                let writer = state.writer.take();
                drop(state);
                if let Some(waker) = writer {
                    waker.wake();
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let arrives = Instant::now() + self.write.hub.delay();
        let mut state = locked(&self.write.state);
        if state.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.closed || state.unread {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = WINDOW.saturating_sub(state.in_flight);
        if room == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let piece = data.get(..room).unwrap_or(data);
        // Nothing overtakes within a connection.
        let arrives = state.queue.back().map_or(arrives, |(at, ..)| arrives.max(*at));
        state.queue.push_back((arrives, piece.to_vec(), 0));
        state.in_flight += piece.len();
        let reader = state.reader.take();
        drop(state);
        if let Some(waker) = reader {
            waker.wake();
        }
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        locked(&self.write.state).closed = true;
        self.write.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        locked(&self.write.state).closed = true;
        locked(&self.read.state).unread = true;
        self.write.wake();
        self.read.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    async fn connected(hub: &SimHub) -> (BoxStream, BoxStream) {
        let listener = hub.host(ip(1)).listen("0.0.0.0:4647".parse().unwrap()).await.unwrap();
        let client = hub.host(ip(2)).connect("10.0.0.1:4647").await.unwrap();
        let (server, from) = listener.accept().await.unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        (client, server)
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_in_order_after_the_latency() {
        let hub = SimHub::new(1);
        hub.set_latency(Duration::from_millis(5), Duration::from_millis(50));
        let (mut client, mut server) = connected(&hub).await;
        let start = Instant::now();
        let sent: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
        let copy = sent.clone();
        let writer = tokio::spawn(async move {
            client.write_all(&copy).await.unwrap();
            client.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        assert!(got == sent);
        assert!(start.elapsed() >= Duration::from_millis(5));
        writer.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_link_holds_bytes_until_it_heals() {
        let hub = SimHub::new(1);
        let (mut client, mut server) = connected(&hub).await;
        hub.partition(&[ip(1)], &[ip(2)]);
        client.write_all(b"late").await.unwrap();
        let mut buf = [0; 4];
        let wait = tokio::time::timeout(Duration::from_secs(60), server.read_exact(&mut buf)).await;
        assert!(wait.is_err());
        let refused = hub.host(ip(2)).connect("10.0.0.1:4647").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        let reader = tokio::spawn(async move {
            server.read_exact(&mut buf).await.unwrap();
            buf
        });
        tokio::task::yield_now().await;
        hub.heal();
        assert_eq!(&reader.await.unwrap(), b"late");
    }

    #[tokio::test(start_paused = true)]
    async fn resets_and_stopped_hosts_break_connections() {
        let hub = SimHub::new(1);
        let (mut client, mut server) = connected(&hub).await;
        hub.reset_between(ip(1), ip(2));
        assert_eq!(client.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(server.read_u8().await.is_err());
        let net = hub.host(ip(3));
        let listener = net.listen("10.0.0.3:1".parse().unwrap()).await.unwrap();
        assert!(net.listen("10.0.0.3:1".parse().unwrap()).await.is_err());
        hub.stop_host(ip(3));
        assert!(listener.accept().await.is_err());
        let refused = hub.host(ip(2)).connect("10.0.0.3:1").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_end_is_an_end_of_file() {
        let hub = SimHub::new(1);
        let (client, mut server) = connected(&hub).await;
        drop(client);
        let mut got = Vec::new();
        assert_eq!(server.read_to_end(&mut got).await.unwrap(), 0);
        assert_eq!(server.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
