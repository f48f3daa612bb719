//! Telling systemd how the agent stands (`Type=notify`, `WatchdogSec=`): datagrams to the socket in `NOTIFY_SOCKET`.
//! Where nobody asked for them nothing is sent.

use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long systemd is asked to go on waiting for an end that takes its time, each time it is asked.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is asked; three can be missed.
const ASK_EVERY: Duration = Duration::from_secs(7);
/// Signs of life within the time after which systemd misses them.
const SIGNS_OF_LIFE: u32 = 3;

/// The agent is ready, for the first time or after a reload.
pub fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}"));
}

/// The agent reads its configuration again. The time is what `Type=notify-reload` goes by.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reading the configuration again"));
}

/// The agent is ending.
pub fn stopping() {
    notify("STOPPING=1\nSTATUS=ending");
}

/// Keeps systemd from cutting a drain short, until dropped. Where it asked for no states it goes by `TimeoutStopSec=`.
pub async fn ask_for_time() {
    loop {
        notify(&format!("EXTEND_TIMEOUT_USEC={}\nSTATUS=draining the node", PATIENCE.as_micros()));
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Gives the signs of life that `WatchdogSec=` asks for; none are given when it does not.
pub async fn live() {
    let variable = |name| std::env::var(name).ok();
    let Some(every) = watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id()) else { return };
    let mut beat = tokio::time::interval(every);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        notify("WATCHDOG=1");
    }
}

/// How often this process is to give a sign of life.
fn watchdog(micros: Option<String>, process: Option<String>, own: u32) -> Option<Duration> {
    if process.is_some_and(|process| process.parse() != Ok(own)) {
        return None;
    }
    let limit: u64 = micros?.parse().ok().filter(|micros| *micros > 0)?;
    Some((Duration::from_micros(limit) / SIGNS_OF_LIFE).max(Duration::from_millis(1)))
}

/// Sends a state to systemd, when it asked for states. That it cannot be told is no reason to fail.
fn notify(state: &str) {
    let Ok(path) = std::env::var("NOTIFY_SOCKET") else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| match path.strip_prefix('@') {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            let address = SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(state.as_bytes(), &address)
        }
        None => socket.send_to(state.as_bytes(), &path),
    });
    if let Err(error) = sent {
        tracing::warn!(target: "agent", %error, path, state, "systemd could not be told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_go_by_what_systemd_says() {
        let text = |t: &str| Some(t.to_string());
        assert_eq!(watchdog(text("30000000"), text("7"), 7), Some(Duration::from_secs(10)));
        assert_eq!(watchdog(text("30000000"), None, 7), Some(Duration::from_secs(10)));
        assert_eq!(watchdog(text("30000000"), text("8"), 7), None, "meant for another process");
        assert_eq!(watchdog(None, text("7"), 7), None);
        assert_eq!(watchdog(text("0"), text("7"), 7), None);
        assert_eq!(watchdog(text("soon"), None, 7), None);
    }
}
