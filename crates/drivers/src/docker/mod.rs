//! `docker`: containers of the container engine on this host.
//!
//! Every container carries the peer's labels, for users' tools, and our own,
//! which name this node, its data directory and the start. Only what carries
//! our own with this node's values is ever touched.
//!
//! A container outlives the agent. Its end is asked of the engine, and its
//! output is copied from the engine's log (see `logs`).

mod auth;
mod client;
mod collect;
mod container;
mod create;
mod exec;
mod image;
mod keys;
mod logs;
mod options;
mod paths;
mod rotate;
mod stats;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::mpsc;

use self::container::Inner;
pub use self::options::{DanglingOptions, DockerOptions};
use crate::driver::{
    Capabilities, Driver, DriverError, ExecError, Fingerprint, FsIsolation, Health, RecoverError, StartError,
};
use crate::schema::ConfigError;
use crate::signals;
use crate::stats::TaskStats;
use crate::streams::{ExecInput, ExecOutput, ExecSpec};
use crate::types::{DriverNetwork, ExitResult, Handle, TaskSpec};

/// What the names of our own labels begin with.
pub(crate) const OWN_LABEL_PREFIX: &str = "herdsman.";

/// The driver.
pub struct DockerDriver {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for DockerDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DockerDriver").field("endpoint", self.inner.engine.endpoint()).finish_non_exhaustive()
    }
}

impl DockerDriver {
    /// Makes the driver; asks the engine nothing yet.
    ///
    /// # Errors
    /// An endpoint that cannot be used, or a state directory that cannot be made.
    pub fn new(options: DockerOptions) -> Result<DockerDriver, String> {
        Ok(DockerDriver { inner: Arc::new(Inner::new(options)?) })
    }

    async fn look(&self) -> Result<Fingerprint, client::EngineError> {
        let (engine, options) = (&self.inner.engine, &self.inner.options);
        engine.forget_version();
        let info = engine.get("/info").await?;
        let text = |at: &str| info.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut out = Fingerprint::healthy("docker");
        let mut set = |name: &str, value: String| {
            if !value.is_empty() {
                out.attributes.insert(format!("driver.docker.{name}"), value);
            }
        };
        set("version", text("/ServerVersion"));
        set("os_type", text("/OSType"));
        let runtimes = info.get("Runtimes").and_then(Value::as_object);
        set("runtimes", runtimes.map(|m| m.keys().cloned().collect::<Vec<_>>().join(",")).unwrap_or_default());
        let bridge = engine.get("/networks/bridge").await.unwrap_or_default();
        set("bridge_ip", bridge_ip(&bridge).unwrap_or_default());
        if options.volumes_enabled {
            set("volumes.enabled", "true".to_owned());
        }
        if options.allow_privileged {
            set("privileged.enabled", "true".to_owned());
        }
        if options.pids_limit > 0 {
            set("pids.limit", options.pids_limit.to_string());
        }
        if text("/OSType") != "linux" {
            out.health = Health::Unhealthy;
            out.description = "only Linux containers are supported".to_owned();
        }
        Ok(out)
    }
}

/// The host's address on the default bridge.
fn bridge_ip(network: &Value) -> Option<String> {
    let gateway = network.pointer("/IPAM/Config/0/Gateway").and_then(Value::as_str).filter(|g| !g.is_empty());
    if let Some(gateway) = gateway {
        return Some(gateway.to_owned());
    }
    // Some engines give themselves the first address without saying so.
    let name = network.pointer("/Options/com.docker.network.bridge.name").and_then(Value::as_str)?;
    interface_address(name)
}

/// The first IPv4 address of an interface, from the kernel's table of routes.
fn interface_address(name: &str) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/fib_trie").ok()?;
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    let network = routes.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let number = |text: Option<&str>| u32::from_str_radix(text?, 16).ok().map(u32::from_be);
        let found = fields.next() == Some(name);
        let (destination, mask) = (number(fields.next())?, number(fields.nth(5))?);
        (found && mask != 0).then_some((destination, mask))
    })?;
    // A host's own addresses are the leaves marked so.
    let mut last = None;
    for line in table.lines().map(str::trim) {
        if let Some(leaf) = line.strip_prefix("|-- ") {
            last = leaf.parse::<std::net::Ipv4Addr>().ok();
        } else if line.contains("host LOCAL")
            && let Some(address) = last.filter(|a| u32::from(*a) & network.1 == network.0)
        {
            return Some(address.to_string());
        }
    }
    None
}

#[async_trait]
impl Driver for DockerDriver {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_signals: true,
            exec: true,
            fs_isolation: FsIsolation::Image,
            mounts: true,
            initiates_network: true,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        match self.look().await {
            Ok(fingerprint) => {
                self.inner.set_seen();
                self.inner.keep_house();
                fingerprint
            }
            Err(e) if self.inner.seen() => Fingerprint::unhealthy(format!("Failed to connect to docker daemon: {e}")),
            Err(e) => Fingerprint::undetected(format!("Failed to connect to docker daemon: {e}")),
        }
    }

    fn check_config(&self, config: &Value) -> Result<(), ConfigError> {
        keys::check(config)
    }

    async fn start(&self, spec: TaskSpec) -> Result<(Handle, Option<DriverNetwork>), StartError> {
        self.check_config(&spec.config).map_err(|e| StartError::fatal(e.to_string()))?;
        self.inner.keep_house();
        Box::pin(self.inner.start(spec)).await
    }

    async fn recover(&self, handle: &Handle) -> Result<(), RecoverError> {
        self.inner.keep_house();
        self.inner.recover(handle).await.map(drop)
    }

    async fn wait(&self, handle: &Handle) -> ExitResult {
        self.inner.wait(handle).await
    }

    async fn stop(&self, handle: &Handle, timeout: Duration, signal: &str) -> Result<(), DriverError> {
        let signal = (!signal.is_empty()).then(|| signals::number_or_interrupt(signal));
        self.inner.stop(handle, timeout, signal).await
    }

    async fn signal(&self, handle: &Handle, signal: &str) -> Result<(), DriverError> {
        self.inner.signal(handle, &signals::number_or_interrupt(signal).to_string()).await
    }

    async fn destroy(&self, handle: &Handle, force: bool) -> Result<(), DriverError> {
        self.inner.destroy(handle, force).await
    }

    async fn stats(&self, handle: &Handle) -> Result<TaskStats, DriverError> {
        let container = self.inner.known(handle).await?;
        stats::measure(&self.inner.engine, &container.id, &container.last_look).await
    }

    async fn exec(
        &self,
        handle: &Handle,
        spec: ExecSpec,
        input: mpsc::Receiver<ExecInput>,
        output: mpsc::Sender<ExecOutput>,
    ) -> Result<i32, ExecError> {
        let container = self.inner.known(handle).await?;
        exec::run(&self.inner.engine, &container.id, &spec, input, output).await
    }
}

/// The labels that make a container ours.
pub(crate) fn own_labels(options: &DockerOptions) -> BTreeMap<String, String> {
    BTreeMap::from([
        (format!("{OWN_LABEL_PREFIX}node_id"), options.node_id.clone()),
        (format!("{OWN_LABEL_PREFIX}data_dir"), options.data_dir.to_string_lossy().into_owned()),
    ])
}
