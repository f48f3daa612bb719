//! What a process takes from outside - time, randomness, disk and network - as parameters, so that
//! a whole cluster runs in one test process with simulated ones.
//!
//! A [`World`] bundles the four. [`World::real`] is the operating system's; [`Simulation`] makes
//! worlds that share one in-memory network and one clock, with a disk and a random stream each, all
//! derived from one seed.
//!
//! Tasks and channels: this crate starts no task and owns no channel. Simulated streams wake their
//! readers themselves.
//!
//! Architecture invariant: only this crate calls `SystemTime::now`, the monotonic clock and the
//! operating system's random source; every other crate gets them passed in.
//!
//! Architecture invariant: two simulations with one seed, driven by the same calls on a paused
//! current-thread runtime, behave the same.
//!
//! Architecture invariant: a simulated disk keeps after a crash exactly what was synced, plus any
//! part of what was not; nothing here hides a missing sync.

mod clock;
pub mod disk;
mod net;
mod real_disk;
mod rng;
mod sim_disk;
mod sim_net;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub use clock::{Clock, Moment, RealClock, SimClock, UnixNanos};
pub use disk::{Disk, DiskEntry, DiskFile, OpenMode};
pub use net::{BoxStream, Listener, Net, RealNet, Stream};
pub use real_disk::RealDisk;
pub use rng::{Rng, SeededRng};
pub use sim_disk::{DiskFault, DiskStats, SimDisk};
pub use sim_net::{SimHub, SimNet};

/// Everything a process takes from outside. Cheap to clone.
#[derive(Clone)]
pub struct World {
    /// Time and sleeping.
    pub clock: Arc<dyn Clock>,
    /// Random numbers and identifiers.
    pub rng: Arc<dyn Rng>,
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Connections.
    pub net: Arc<dyn Net>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    /// The operating system's clock, random source, files and sockets.
    ///
    /// Fails when the operating system's random source cannot be read.
    pub fn real() -> std::io::Result<World> {
        Ok(World {
            clock: Arc::new(RealClock::new()),
            rng: Arc::new(SeededRng::from_os()?),
            disk: Arc::new(RealDisk),
            net: Arc::new(RealNet),
        })
    }

    /// A world of its own: one simulated host at 127.0.0.1. Several hosts that reach each other
    /// come from [`Simulation`].
    #[must_use]
    pub fn simulated(seed: u64) -> World {
        Simulation::new(seed).world(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
}

/// Makes the worlds of one simulated cluster: one clock and one network, and for each host a disk
/// and a random stream of its own.
#[derive(Clone)]
pub struct Simulation {
    seed: u64,
    clock: Arc<SimClock>,
    hub: SimHub,
}

impl Simulation {
    /// A simulated cluster whose every random choice follows from `seed`. Time starts at
    /// 2024-01-01T00:00:00Z and passes with tokio's clock.
    #[must_use]
    pub fn new(seed: u64) -> Simulation {
        Simulation { seed, clock: Arc::new(SimClock::new()), hub: SimHub::new(seed) }
    }

    /// The clock all hosts share.
    #[must_use]
    pub fn clock(&self) -> Arc<SimClock> {
        Arc::clone(&self.clock)
    }

    /// The network all hosts share: cut links, set latencies, reset connections here.
    #[must_use]
    pub fn hub(&self) -> &SimHub {
        &self.hub
    }

    /// A host with a new, empty disk.
    #[must_use]
    pub fn world(&self, ip: IpAddr) -> World {
        self.world_with_disk(ip, Arc::new(SimDisk::new(self.host_seed(ip, 1))), 0)
    }

    /// A host on a disk that exists already, for example after a crash. `boot` numbers the starts
    /// of the host, so that a restarted process does not repeat the random stream (and with it the
    /// identifiers) of its earlier life.
    #[must_use]
    pub fn world_with_disk(&self, ip: IpAddr, disk: Arc<dyn Disk>, boot: u64) -> World {
        World {
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            rng: Arc::new(SeededRng::from_seed(self.host_seed(ip, boot.wrapping_add(2)))),
            disk,
            net: Arc::new(self.hub.host(ip)),
        }
    }

    fn host_seed(&self, ip: IpAddr, salt: u64) -> u64 {
        let octets = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let mut seed = rng::mix(self.seed ^ rng::mix(salt));
        for octet in octets {
            seed = rng::mix(seed ^ u64::from(octet));
        }
        seed
    }
}
