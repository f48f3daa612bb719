//! The handle other crates hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use herdsman_world::World;
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use openraft::{BasicNode, ChangeMembers, RaftMetrics, ServerState, SnapshotPolicy};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::config::{
    Applied, Config, MAX_COMMAND_BYTES, MAX_QUEUED_PROPOSALS, MembershipError, NodeId, OpenError, ProposeError,
    ReadError, SnapshotError,
};
use crate::convert::{LogId, Raft};
use crate::group::{Group, Proposal};
use crate::log::{DirLock, MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, SegmentLog, Shared};
use crate::machine::{Machine, MachineStore, Pressure};
use crate::snapshot::SnapshotStore;
use crate::snapshot_task;
use crate::store::LogStore;
use crate::transport::{CallServer, Peers};

/// Requests for a snapshot that wait.
const MAX_QUEUED_SNAPSHOTS: usize = 16;
/// Entries that purging waits for, so that it is not done one by one.
const PURGE_BATCH: u64 = 64;
/// How long a server may take to install a snapshot that it was sent.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Who leads, as this server knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The leader.
    pub leader: Option<NodeId>,
    /// Whether it is this server.
    pub is_leader: bool,
    /// The term.
    pub term: u64,
    /// This server leads and has applied everything that was in its log when it began to: what its
    /// machine shows is up to date. Act as leader only then.
    pub ready: bool,
}

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// How to reach it.
    pub address: String,
    /// Whether it votes; otherwise it only follows.
    pub voter: bool,
}

/// Where the log stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The term.
    pub term: u64,
    /// Index of the last entry in the log.
    pub last_log: Option<u64>,
    /// Index of the last entry known to be on a majority.
    pub committed: Option<u64>,
    /// Index of the last entry applied.
    pub applied: Option<u64>,
    /// Index of the last entry in the current snapshot.
    pub snapshot: Option<u64>,
    /// Bytes of the current snapshot's file.
    pub snapshot_bytes: u64,
    /// Index of the last entry removed from the log.
    pub purged: Option<u64>,
    /// Why the last snapshot failed, when it did.
    pub snapshot_error: Option<String>,
    /// Why this server takes no more commands, when it does not.
    pub failure: Option<String>,
}

/// The replicated log. Clones are the same log; it closes when the last one is dropped.
#[derive(Clone)]
pub struct Consensus {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Consensus(server {})", self.inner.node_id)
    }
}

struct Inner {
    node_id: NodeId,
    raft: Raft,
    machine: MachineStore,
    shared: Arc<Shared>,
    proposals: mpsc::Sender<Proposal>,
    orders: mpsc::Sender<snapshot_task::Order>,
    leadership: watch::Receiver<Leadership>,
    snapshot_error: watch::Receiver<Option<String>>,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    log: LogStore,
    propose_timeout: Duration,
}

impl Consensus {
    /// From now on a snapshot is taken after this many applied log entries; 0 counts as 1.
    pub fn set_snapshot_entries(&self, entries: u64) {
        self.inner.machine.pressure.entry_limit.store(entries.max(1), std::sync::atomic::Ordering::Relaxed);
    }

    /// Opens the log in `config.dir`, brings `machine` up to date from the snapshot and, for the
    /// only voter, from everything after it, and starts. The only voter leads at once; wait for
    /// [`Leadership::ready`].
    ///
    /// Fails when the directory is in use, when stored bytes are damaged, and when the file system
    /// or the network refuses.
    pub async fn open(config: Config, world: World, machine: Box<dyn Machine>) -> Result<Consensus, OpenError> {
        check_config(&config)?;
        let shared = Shared::new();
        let stored = open_stored(&config, &world, machine, &shared).await?;
        let Stored { mut log, machine } = stored;
        if only_voter(config.node_id, &machine, &mut log).await? {
            log.trust();
        }
        let raft = start_raft(&config, &world, &log, &machine).await?;
        let (stop, stopped) = watch::channel(false);
        let mut tasks = Vec::new();
        if let Some(address) = config.listen {
            let listening = |error| OpenError::io("listen for other servers", error);
            let listener = world.net.listen(address).await.map_err(listening)?;
            let server = CallServer { raft: raft.clone(), snapshots: Arc::clone(&machine.snapshots) };
            tasks.push(tokio::spawn(server.run(listener, stopped.clone())));
        }
        begin(&config, &raft).await?;
        let (proposals, queue) = mpsc::channel(MAX_QUEUED_PROPOSALS);
        let group = Group {
            raft: raft.clone(),
            log: log.clone(),
            shared: Arc::clone(&shared),
            proposals: queue,
            stop: stopped.clone(),
        };
        tasks.push(tokio::spawn(group.run()));
        let (orders, queue) = mpsc::channel(MAX_QUEUED_SNAPSHOTS);
        let (error_sender, snapshot_error) = watch::channel(None);
        let snapshots = snapshot_task::run(machine.clone(), raft.clone(), queue, stopped.clone(), error_sender);
        let held = log.clone();
        tasks.push(tokio::spawn(async move {
            snapshots.await;
            // The directory stays locked while a snapshot is being written.
            drop(held);
        }));
        let (sender, leadership) = watch::channel(Leadership::default());
        let watcher = watch_leadership(config.node_id, raft.clone(), sender, stopped, Arc::clone(&shared));
        tasks.push(tokio::spawn(watcher));
        let inner = Inner {
            node_id: config.node_id,
            raft,
            machine,
            shared,
            proposals,
            orders,
            leadership,
            snapshot_error,
            stop,
            tasks: Mutex::new(tasks),
            log,
            propose_timeout: config.propose_timeout,
        };
        Ok(Consensus { inner: Arc::new(inner) })
    }

    /// This server's number.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        self.inner.node_id
    }

    /// Proposes a command; returns once it is durable on a majority and applied here. Dropping the
    /// future does not take the command back.
    pub async fn propose(&self, command: Bytes) -> Result<Applied, ProposeError> {
        let size = command.len();
        if size > MAX_COMMAND_BYTES {
            return Err(ProposeError::TooLarge { size, limit: MAX_COMMAND_BYTES });
        }
        let after = self.inner.propose_timeout;
        match tokio::time::timeout(after, self.propose_untimed(command)).await {
            Ok(result) => result,
            Err(_) => Err(ProposeError::Timeout { after }),
        }
    }

    async fn propose_untimed(&self, command: Bytes) -> Result<Applied, ProposeError> {
        let (result, answer) = oneshot::channel();
        if self.inner.proposals.send(Proposal { command, result }).await.is_err() {
            return Err(ProposeError::Shutdown);
        }
        answer.await.unwrap_or(Err(ProposeError::Shutdown))
    }

    /// Who leads, as it changes.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// Why this server takes no more commands, once that is so: a write or sync failed, or the
    /// machine broke its promises. The process should report it and end; a restart reads what is
    /// durable.
    #[must_use]
    pub fn failure(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.inner.shared.failure.subscribe()
    }

    /// Returns once this machine shows everything that was acknowledged before the call, confirmed
    /// by a majority. Only on the leader.
    pub async fn read_barrier(&self) -> Result<(), ReadError> {
        match self.inner.raft.ensure_linearizable().await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => Err(ReadError::NotLeader {
                leader: forward.leader_id,
                address: forward.leader_node.map(|node| node.addr),
            }),
            Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(error))) => {
                Err(ReadError::NoQuorum(error.to_string()))
            }
            Err(RaftError::Fatal(fatal)) => Err(ReadError::Stopped(fatal.to_string())),
        }
    }

    /// The servers of the cluster, by number.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let voters: std::collections::BTreeSet<NodeId> = membership.voter_ids().collect();
        membership
            .nodes()
            .map(|(&id, node)| Member { id, address: node.addr.clone(), voter: voters.contains(&id) })
            .collect()
    }

    /// Adds a server that only follows; returns once it has caught up. Make it vote with
    /// [`Consensus::set_voters`].
    pub async fn add_member(&self, id: NodeId, address: String) -> Result<(), MembershipError> {
        membership_result(self.inner.raft.add_learner(id, BasicNode::new(address), true).await)
    }

    /// Makes exactly these members vote; others that voted leave the cluster.
    pub async fn set_voters(&self, voters: impl IntoIterator<Item = NodeId>) -> Result<(), MembershipError> {
        let voters = ChangeMembers::ReplaceAllVoters(voters.into_iter().collect());
        membership_result(self.inner.raft.change_membership(voters, false).await)
    }

    /// Removes a server that only follows.
    pub async fn remove_member(&self, id: NodeId) -> Result<(), MembershipError> {
        let nodes = ChangeMembers::RemoveNodes(std::iter::once(id).collect());
        membership_result(self.inner.raft.change_membership(nodes, false).await)
    }

    /// Where the log stands.
    pub async fn status(&self) -> Status {
        let committed = self.inner.raft.with_raft_state(|state| state.committed.map(|id| id.index)).await;
        let metrics = self.inner.raft.metrics().borrow().clone();
        let index = |id: Option<LogId>| id.map(|id| id.index);
        let current = self.inner.machine.snapshots.current();
        let applied = index(self.inner.machine.applied());
        Status {
            term: metrics.current_term,
            last_log: metrics.last_log_index,
            committed: committed.unwrap_or(applied),
            applied,
            snapshot: current.as_ref().and_then(|current| index(current.meta.last_log_id)),
            snapshot_bytes: current.map_or(0, |current| current.bytes),
            purged: index(metrics.purged),
            snapshot_error: self.inner.snapshot_error.borrow().clone(),
            failure: self.inner.shared.failure.borrow().as_ref().map(ToString::to_string),
        }
    }

    /// Takes a snapshot of what has been applied; gives the index of the last entry in it, none
    /// when nothing has been applied yet.
    pub async fn snapshot_now(&self) -> Result<Option<u64>, SnapshotError> {
        let (order, answer) = oneshot::channel();
        if self.inner.orders.send(order).await.is_err() {
            return Err(SnapshotError::Shutdown);
        }
        answer.await.unwrap_or(Err(SnapshotError::Shutdown))
    }

    /// Stands for election now, for example when the leader is known to have stopped.
    pub async fn campaign(&self) -> Result<(), ReadError> {
        let trigger = self.inner.raft.trigger();
        trigger.elect().await.map_err(|fatal| ReadError::Stopped(fatal.to_string()))
    }

    /// Closes the log: refuses what waits, ends all tasks, frees the directory. Nothing that was
    /// acknowledged is lost; there is nothing left to write.
    pub async fn shutdown(&self) {
        self.inner.stop.send_replace(true);
        let tasks = std::mem::take(&mut *self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the log did not end as it should");
            }
        }
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::error!(%error, "the consensus core did not end as it should");
        }
        self.inner.log.close();
    }
}

fn membership_result<T>(
    result: Result<T, RaftError<NodeId, ClientWriteError<NodeId, BasicNode>>>,
) -> Result<(), MembershipError> {
    match result {
        Ok(_) => Ok(()),
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => Err(MembershipError::NotLeader {
            leader: forward.leader_id,
            address: forward.leader_node.map(|node| node.addr),
        }),
        Err(RaftError::APIError(error)) => Err(MembershipError::Refused(error.to_string())),
        Err(RaftError::Fatal(fatal)) => Err(MembershipError::Stopped(fatal.to_string())),
    }
}

fn check_config(config: &Config) -> Result<(), OpenError> {
    let wrong = |setting, reason: String| Err(OpenError::Config { setting, reason });
    if !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&config.segment_bytes) {
        let reason = format!("{} is not from {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}", config.segment_bytes);
        return wrong("segment_bytes", reason);
    }
    if config.snapshot_entries == 0 || config.snapshot_bytes == 0 {
        return wrong("snapshot_entries and snapshot_bytes", "must be above 0".to_owned());
    }
    if config.heartbeat_ms == 0 || config.election_ms <= config.heartbeat_ms {
        let reason = format!("{} must be above heartbeat_ms, which is {}", config.election_ms, config.heartbeat_ms);
        return wrong("election_ms", reason);
    }
    match &config.bootstrap {
        Some(voters) if !voters.contains_key(&config.node_id) => {
            wrong("bootstrap", format!("this server, number {}, is not among the voters", config.node_id))
        }
        _ => Ok(()),
    }
}

struct Stored {
    log: LogStore,
    machine: MachineStore,
}

async fn open_stored(
    config: &Config,
    world: &World,
    machine: Box<dyn Machine>,
    shared: &Arc<Shared>,
) -> Result<Stored, OpenError> {
    let (config, shared) = (config.clone(), Arc::clone(shared));
    let (disk, salt) = (Arc::clone(&world.disk), world.rng.u64());
    let opened = herdsman_world::disk::run(&*world.disk, move || {
        let dir: &Path = &config.dir;
        let result = (|| {
            disk.create_dir_all(dir).map_err(|error| OpenError::io(format!("make {}", dir.display()), error))?;
            let lock = disk.lock(&dir.join("lock")).map_err(|error| match error.kind() {
                std::io::ErrorKind::WouldBlock => OpenError::Locked { dir: dir.to_path_buf() },
                _ => OpenError::io("lock the data directory", error),
            })?;
            let snapshots = Arc::new(SnapshotStore::open(Arc::clone(&disk), dir)?);
            check_log_present(&*disk, dir, &snapshots)?;
            let mut log = SegmentLog::open(Arc::clone(&disk), dir, config.segment_bytes, salt, Arc::clone(&shared))?;
            log.lock = Some(DirLock(lock));
            let pressure = Pressure {
                entry_limit: config.snapshot_entries.into(),
                byte_limit: config.snapshot_bytes,
                ..Pressure::default()
            };
            let log = LogStore::new(Arc::clone(&disk), log, Arc::clone(&shared));
            let machine = MachineStore::open(machine, snapshots, pressure)?;
            check_reach(dir, &log, &machine)?;
            Ok(Stored { log, machine })
        })();
        Ok(result)
    });
    opened.await.map_err(|error| OpenError::io(String::from("open the log"), error))?
}

fn check_log_present(disk: &dyn herdsman_world::Disk, dir: &Path, snapshots: &SnapshotStore) -> Result<(), OpenError> {
    let present =
        crate::log_open::has_log(disk, dir).map_err(|error| OpenError::io(format!("read {}", dir.display()), error))?;
    match snapshots.current() {
        Some(current) if !present => Err(OpenError::Corrupt {
            file: dir.to_path_buf(),
            offset: 0,
            reason: format!("{} is there but the log is not", current.path.display()),
        }),
        _ => Ok(()),
    }
}

/// The log must begin where the snapshot ends, or before.
fn check_reach(dir: &Path, log: &LogStore, machine: &MachineStore) -> Result<(), OpenError> {
    let (purged, applied) = (log.purged(), machine.applied());
    if purged.map(|id| id.index) <= applied.map(|id| id.index) {
        return Ok(());
    }
    Err(OpenError::Corrupt {
        file: dir.to_path_buf(),
        offset: 0,
        reason: format!(
            "the log begins after entry {}, but the newest whole snapshot ends at {}",
            purged.map_or(0, |id| id.index),
            applied.map_or_else(|| "nothing".to_owned(), |id| id.index.to_string())
        ),
    })
}

/// Whether the log's last membership has this server as its only voter: then everything in its own
/// log is on a majority.
async fn only_voter(node_id: NodeId, machine: &MachineStore, log: &mut LogStore) -> Result<bool, OpenError> {
    let mut machine = machine.clone();
    let mut helper = openraft::StorageHelper::new(log, &mut machine);
    let membership = helper.get_membership().await.map_err(|error| OpenError::Start(error.to_string()))?;
    let effective = membership.effective().membership();
    Ok(effective.get_joint_config().len() == 1 && effective.voter_ids().eq([node_id]))
}

async fn start_raft(config: &Config, world: &World, log: &LogStore, machine: &MachineStore) -> Result<Raft, OpenError> {
    let start = |error: &dyn std::fmt::Display| OpenError::Start(error.to_string());
    // Chosen here, so that a simulated cluster's elections follow from its seed.
    let election = config.election_ms.saturating_add(world.rng.below(config.election_ms));
    let raft_config = openraft::Config {
        cluster_name: "herdsman".to_owned(),
        heartbeat_interval: config.heartbeat_ms,
        election_timeout_min: election,
        election_timeout_max: election.saturating_add(1),
        install_snapshot_timeout: u64::try_from(INSTALL_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
        max_payload_entries: 256,
        replication_lag_threshold: config.keep_entries.max(1),
        // The snapshot task decides, since openraft stops when building one fails.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: config.keep_entries,
        purge_batch_size: PURGE_BATCH,
        ..openraft::Config::default()
    };
    let raft_config = raft_config.validate().map_err(|error| start(&error))?;
    let peers = Peers { net: Arc::clone(&world.net), snapshots: Arc::clone(&machine.snapshots) };
    let raft = Raft::new(config.node_id, Arc::new(raft_config), peers, log.clone(), machine.clone()).await;
    raft.map_err(|error| start(&error))
}

/// Begins a new cluster when told to, and has the only voter lead without waiting.
async fn begin(config: &Config, raft: &Raft) -> Result<(), OpenError> {
    let failed = |error: &dyn std::fmt::Display| OpenError::Start(error.to_string());
    if let Some(voters) = &config.bootstrap
        && !raft.is_initialized().await.map_err(|error| failed(&error))?
    {
        let voters: BTreeMap<NodeId, BasicNode> =
            voters.iter().map(|(id, address)| (*id, BasicNode::new(address.clone()))).collect();
        return raft.initialize(voters).await.map_err(|error| failed(&error));
    }
    let alone = {
        let metrics = raft.metrics();
        let metrics = metrics.borrow();
        metrics.state != ServerState::Leader && metrics.membership_config.membership().voter_ids().eq([config.node_id])
    };
    if alone {
        raft.trigger().elect().await.map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Publishes who leads until `stop` or until openraft has stopped.
async fn watch_leadership(
    node_id: NodeId,
    raft: Raft,
    sender: watch::Sender<Leadership>,
    mut stop: watch::Receiver<bool>,
    shared: Arc<Shared>,
) {
    let mut all = raft.metrics();
    let mut changes = raft.server_metrics();
    drop(raft);
    let mut begun: Option<(u64, Option<u64>)> = None;
    loop {
        let metrics = all.borrow_and_update().clone();
        let now = leadership_of(node_id, &metrics, &mut begun);
        sender.send_if_modified(|before| std::mem::replace(before, now) != now);
        if let Err(fatal) = &metrics.running_state {
            report_fatal(fatal, &shared);
            sender.send_replace(Leadership { term: metrics.current_term, ..Leadership::default() });
            return;
        }
        // Every entry changes the metrics; they matter only until the leader has caught up.
        let catching_up = now.is_leader && !now.ready;
        let alive = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => false,
            changed = changes.changed() => changed.is_ok() || all.has_changed().is_ok(),
            changed = all.changed(), if catching_up => changed.is_ok(),
        };
        if !alive {
            if let Err(fatal) = &all.borrow().running_state {
                report_fatal(fatal, &shared);
            }
            sender.send_replace(Leadership { term: now.term, ..Leadership::default() });
            return;
        }
    }
}

fn leadership_of(
    node_id: NodeId,
    metrics: &RaftMetrics<NodeId, BasicNode>,
    begun: &mut Option<(u64, Option<u64>)>,
) -> Leadership {
    let is_leader = metrics.state == ServerState::Leader && metrics.current_leader == Some(node_id);
    let term = metrics.current_term;
    if !is_leader {
        *begun = None;
    } else if begun.is_none_or(|(begun, _)| begun != term) {
        *begun = Some((term, metrics.last_log_index));
    }
    let ready = begun.is_some_and(|(term, target)| {
        let applied = metrics.last_applied;
        applied.is_some_and(|applied| applied.leader_id.term == term) && applied.map(|id| id.index) >= target
    });
    Leadership { leader: metrics.current_leader, is_leader, term, ready }
}

fn report_fatal(fatal: &openraft::error::Fatal<NodeId>, shared: &Shared) {
    if matches!(fatal, openraft::error::Fatal::Stopped) {
        return;
    }
    tracing::error!(error = %fatal, "the consensus core has stopped; this server takes no more commands");
    shared.failure.send_if_modified(|reason| {
        let first = reason.is_none();
        if first {
            *reason = Some(fatal.to_string().into());
        }
        first
    });
}
