//! What handlers reach: the server of this agent, if it is one, the agent itself, metrics, and the way to a server for an
//! agent that is none.

use crate::agent::Agent;
use crate::error::HttpError;
use crate::events::EventBuffer;
use crate::metrics::Metrics;
use herdsman_server::Server;
use herdsman_state::{Snapshot, WatchKey};
use herdsman_world::World;
use std::sync::Arc;
use std::time::Duration;

/// How long a request waits for a leader before it fails. Source: wire-notes section 4.
pub const LEADER_WAIT: Duration = Duration::from_secs(5);

/// Everything a handler may reach. One per agent.
pub struct Api {
    server: Option<Server>,
    agent: Arc<dyn Agent>,
    world: World,
    metrics: Metrics,
    events: Option<Arc<EventBuffer>>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Api(server: {})", self.server.is_some())
    }
}

impl Api {
    /// The API of an agent. Without a server, requests that need one go to the servers the agent knows, over `world`.
    ///
    /// With a server this starts one task that keeps the last events; it ends with the server's feed.
    pub fn new(server: Option<Server>, agent: Arc<dyn Agent>, world: World) -> Arc<Api> {
        let events = server.as_ref().map(|server| EventBuffer::start(server.changes()));
        let metrics = Metrics::new(Arc::clone(&world.clock));
        Arc::new(Api { server, agent, world, metrics, events })
    }

    /// The agent this API belongs to.
    pub fn agent(&self) -> &Arc<dyn Agent> {
        &self.agent
    }

    /// What was measured.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Clock, randomness and network.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The server of this agent, whether it leads or not.
    pub fn local_server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// The server of this agent.
    ///
    /// # Errors
    /// This agent runs none.
    pub fn server(&self) -> Result<&Server, HttpError> {
        self.server.as_ref().ok_or_else(|| HttpError::new(501, "this agent runs no server"))
    }

    /// The last events.
    ///
    /// # Errors
    /// This agent runs no server.
    pub fn events(&self) -> Result<&Arc<EventBuffer>, HttpError> {
        self.events.as_ref().ok_or_else(|| HttpError::new(501, "this agent runs no server"))
    }

    /// The server, once it leads and shows everything that was acknowledged.
    ///
    /// # Errors
    /// There is no leader within [`LEADER_WAIT`].
    pub async fn leader(&self) -> Result<&Server, HttpError> {
        let server = self.server()?;
        if !server.is_ready() && tokio::time::timeout(LEADER_WAIT, server.ready()).await.is_err() {
            return Err(HttpError::internal("No cluster leader"));
        }
        Ok(server)
    }

    /// The newest tables. Unless `stale` ones will do, waits for a leader.
    ///
    /// # Errors
    /// As [`Api::leader`].
    pub async fn snapshot(&self, stale: bool) -> Result<Arc<Snapshot>, HttpError> {
        let server = if stale { self.server()? } else { self.leader().await? };
        Ok(server.snapshot())
    }

    /// Begins to wait for changes of these keys.
    ///
    /// # Errors
    /// This agent runs no server.
    pub fn watch(&self, keys: &[WatchKey]) -> Result<herdsman_server::Watching, HttpError> {
        Ok(self.server()?.watch(keys))
    }

    /// Whether a leader is known.
    pub fn knows_leader(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.leadership().borrow().leader.is_some())
    }
}
