//! What this machine costs right now: a data sync, and a process.

use anyhow::Result;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often each is done.
const TIMES: usize = 100;

/// The median of something done many times.
fn median(mut what: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut all = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let start = Instant::now();
        what()?;
        all.push(start.elapsed());
    }
    all.sort();
    Ok(all.get(TIMES / 2).copied().unwrap_or_default())
}

/// A 4 KiB write and its data sync in a folder.
pub fn data_sync(folder: &std::path::Path) -> Result<Duration> {
    let mut file = std::fs::File::create(folder.join("calibrate"))?;
    let block = [7u8; 4096];
    median(|| {
        file.write_all(&block)?;
        file.sync_data()?;
        Ok(())
    })
}

/// Starting `/bin/true` and waiting for its end.
pub fn process() -> Result<Duration> {
    median(|| {
        Command::new("/bin/true").stdin(Stdio::null()).status()?;
        Ok(())
    })
}
