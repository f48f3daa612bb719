//! What nodes say of their allocations and services, merged into one proposal at a time: what arrives while a proposal is
//! on its way to the log waits for the next one, and nothing waits otherwise.

use crate::error::ServerError;
use crate::server::Server;
use herdsman_proto::{AllocUpdate, ServiceRegistration};
use herdsman_state::{Body, ServiceUpdates, UpdateAllocs};
use tokio::sync::{mpsc, oneshot, watch};

/// Messages of nodes that wait; beyond it sessions wait.
const MAX_QUEUED: usize = 4096;
/// A proposal takes no further message beyond this many bytes.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// What a node said in one message.
#[derive(Debug)]
pub(crate) enum Said {
    Allocs(Vec<AllocUpdate>),
    Services { register: Vec<ServiceRegistration>, deregister: Vec<String> },
}

#[derive(Debug)]
pub(crate) struct Message {
    said: Said,
    bytes: usize,
    done: oneshot::Sender<Result<(), ServerError>>,
}

/// Where sessions put what nodes say.
#[derive(Debug, Clone)]
pub(crate) struct Updates {
    queue: mpsc::Sender<Message>,
}

impl Updates {
    pub fn new() -> (Updates, mpsc::Receiver<Message>) {
        let (queue, messages) = mpsc::channel(MAX_QUEUED);
        (Updates { queue }, messages)
    }

    /// Puts a message in line. The receiver tells when it is in the log.
    pub async fn put(&self, said: Said, bytes: usize) -> oneshot::Receiver<Result<(), ServerError>> {
        let (done, receiver) = oneshot::channel();
        // When the server stops the sender is dropped, which the receiver sees.
        let _ = self.queue.send(Message { said, bytes, done }).await;
        receiver
    }
}

pub(crate) async fn run(server: Server, mut messages: mpsc::Receiver<Message>, mut stopped: watch::Receiver<bool>) {
    loop {
        let first = tokio::select! {
            biased;
            () = crate::server::turned_true(&mut stopped) => return,
            first = messages.recv() => first,
        };
        let Some(first) = first else { return };
        let mut bytes = first.bytes;
        let mut batch = vec![first];
        while bytes < MAX_BATCH_BYTES
            && let Ok(next) = messages.try_recv()
        {
            bytes += next.bytes;
            batch.push(next);
        }
        propose(&server, batch).await;
    }
}

async fn propose(server: &Server, batch: Vec<Message>) {
    let mut updates = Vec::new();
    let mut services = ServiceUpdates::default();
    let (mut of_allocs, mut of_services) = (Vec::new(), Vec::new());
    for message in batch {
        match message.said {
            Said::Allocs(said) => {
                updates.extend(said);
                of_allocs.push(message.done);
            }
            Said::Services { register, deregister } => {
                // A service that came and went again within one batch is not there.
                services.register.retain(|service| !deregister.contains(&service.id));
                services.deregister.retain(|id| !register.iter().any(|service| service.id == *id));
                services.register.extend(register);
                services.deregister.extend(deregister);
                of_services.push(message.done);
            }
        }
    }
    let allocs = async {
        if of_allocs.is_empty() {
            return;
        }
        let command = UpdateAllocs { updates, seed: server.seed() };
        answer(of_allocs, server.propose(Body::UpdateAllocs(command)).await.map(|_| ()));
    };
    let services = async {
        if of_services.is_empty() {
            return;
        }
        answer(of_services, server.propose(Body::Services(services)).await.map(|_| ()));
    };
    futures::future::join(allocs, services).await;
}

fn answer(waiting: Vec<oneshot::Sender<Result<(), ServerError>>>, result: Result<(), ServerError>) {
    for done in waiting {
        // A session that ended does not wait any more; its node sends again.
        let _ = done.send(result.clone());
    }
}
