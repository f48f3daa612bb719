//! A machine that remembers everything, to compare with.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use herdsman_consensus::{Machine, SnapshotWriter};

/// Every command applied, in order. Clones show the same machine.
#[derive(Clone, Default)]
pub struct Recorder {
    pub seen: Arc<Mutex<Vec<Bytes>>>,
}

impl Recorder {
    pub fn seen(&self) -> Vec<Bytes> {
        self.seen.lock().unwrap().clone()
    }
}

impl Machine for Recorder {
    fn apply(&mut self, log_index: u64, commands: Vec<Bytes>) -> Vec<Bytes> {
        let mut seen = self.seen.lock().unwrap();
        let mut results = Vec::new();
        for command in commands {
            assert_ne!(&command[..], b"panic");
            let text = format!("{}@{log_index}#{}", String::from_utf8_lossy(&command), seen.len());
            seen.push(command);
            results.push(Bytes::from(text));
        }
        results
    }

    fn snapshot(&self) -> SnapshotWriter {
        let seen = self.seen();
        Box::new(move |to| {
            for command in seen {
                to.write_all(&u32::try_from(command.len()).unwrap().to_le_bytes())?;
                to.write_all(&command)?;
            }
            Ok(())
        })
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut all = Vec::new();
        from.read_to_end(&mut all)?;
        let mut rest = all.as_slice();
        let mut seen = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (command, after) = after.split_at(usize::try_from(u32::from_le_bytes(*length)).unwrap());
            seen.push(Bytes::copy_from_slice(command));
            rest = after;
        }
        *self.seen.lock().unwrap() = seen;
        Ok(())
    }
}
