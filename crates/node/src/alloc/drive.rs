//! What the runner asks of drivers, as futures that give a [`Done`].

use super::runner::Done;
use herdsman_drivers::{Driver, DriverError, ExitResult, Handle, RecoverError, TaskSpec};
use herdsman_lifecycle::{Event, Exit, Key, Recovery};
use herdsman_model::{Name, TaskFact};
use herdsman_world::World;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// First and longest wait between two attempts of something a driver must do in the end.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(120));

/// Begins work at once, so that it goes on while the runner waits for the store. It ends early when it is dropped.
pub fn ahead(work: impl Future<Output = Done> + Send + 'static) -> impl Future<Output = Done> + Send + 'static {
    let mut begun = JoinSet::new();
    begun.spawn(work);
    async move {
        match begun.join_next().await {
            Some(Ok(done)) => done,
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is ending.
            Some(Err(_)) | None => Done::Nothing,
        }
    }
}

/// Starts a task.
pub async fn start(driver: Arc<dyn Driver>, spec: TaskSpec, task: Name, key: Key) -> Done {
    match driver.start(spec).await {
        Ok((handle, network)) => Done::Started { task, key, driver, handle: Box::new(handle), network },
        Err(error) => {
            let fact = TaskFact::DriverFailure { error: error.message };
            Done::Event(Event::StartFailed { task, key, fact, recoverable: error.recoverable })
        }
    }
}

/// Waits for the end of a task.
pub async fn wait(driver: Arc<dyn Driver>, handle: Handle, task: Name, key: Key) -> Done {
    let exit = exit(driver.wait(&handle).await);
    Done::Exited { task, key, exit, driver, handle: Box::new(handle) }
}

fn exit(result: ExitResult) -> Exit {
    let mut message = result.err.clone().unwrap_or_default();
    if result.oom_killed && message.is_empty() {
        message = "OOM Killed".into();
    }
    if result.lost_output > 0 {
        let more = format!("{} bytes of output could not be kept", result.lost_output);
        message = if message.is_empty() { more } else { format!("{message}; {more}") };
    }
    let (exit_code, signal, oom_killed) = (result.exit_code, result.signal, result.oom_killed);
    Exit { exit_code, signal, oom_killed, message, error: result.err.is_some() }
}

/// Ends a task; tries until the driver has done it.
pub async fn stop(world: World, driver: Arc<dyn Driver>, handle: Handle, signal: String, timeout: Duration) -> Done {
    let mut wait = RETRY.0;
    loop {
        match driver.stop(&handle, timeout, &signal).await {
            Ok(()) | Err(DriverError::NotRunning) => return Done::Nothing,
            Err(DriverError::Failed(error)) => {
                tracing::warn!(task = %handle.key.task, alloc = %handle.key.alloc_id, %error, "the task could not be ended; trying again");
            }
        }
        world.clock.sleep(wait).await;
        wait = wait.saturating_mul(4).min(RETRY.1);
    }
}

/// Removes the last trace of an ended task.
pub async fn destroy(driver: Arc<dyn Driver>, handle: Handle, task: Name) -> Done {
    if let Err(error) = driver.destroy(&handle, true).await {
        tracing::warn!(%task, alloc = %handle.key.alloc_id, %error, "a trace of the ended task is left");
    }
    Done::Destroyed { task, key: Key { run: handle.key.run, attempt: handle.key.attempt } }
}

/// Finds out what became of a task of an earlier agent.
pub async fn recover(world: World, driver: Option<Arc<dyn Driver>>, handle: Handle, task: Name, key: Key) -> Done {
    let found = |found| Event::Recovered { task: Name::clone(&task), key, found };
    let Some(driver) = driver else {
        let error = format!("driver {:?} is not there any more", handle.driver);
        return Done::Event(found(Recovery::Lost { error }));
    };
    let mut wait = RETRY.0;
    loop {
        match driver.recover(&handle).await {
            Ok(()) => return Done::Recovered { task, key, driver, handle: Box::new(handle) },
            Err(RecoverError::NeverStarted) => return Done::Event(found(Recovery::NotStarted)),
            Err(RecoverError::Lost(error)) => return Done::Event(found(Recovery::Lost { error })),
            Err(RecoverError::Unknown(error)) => {
                tracing::warn!(%task, alloc = %handle.key.alloc_id, %error, "it cannot be told yet what became of the task");
            }
        }
        world.clock.sleep(wait).await;
        wait = wait.saturating_mul(2).min(RETRY.1);
    }
}
