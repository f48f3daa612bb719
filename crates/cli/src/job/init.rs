//! `job init`: an example job file to begin with.

use crate::command::{Call, Failure};
use std::io::Write;

/// The name of the file when none is given.
const DEFAULT_NAME: &str = "example.nomad.hcl";

const SHORT: &str = r#"job "example" {
  group "cache" {
    network {
      port "db" {
        to = 6379
      }
    }

    task "redis" {
      driver = "docker"

      config {
        image = "redis:7"
        ports = ["db"]
      }

      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
}
"#;

const LONG: &str = r#"# A job says what is to run. Submit it with: job run example.nomad.hcl
job "example" {
  # "service" is kept running, "batch" runs to its end, "system" and "sysbatch" do so on every node.
  type = "service"

  # Where it may run. "*" is everywhere.
  datacenters = ["*"]

  # How a new version replaces the old one.
  update {
    max_parallel      = 1
    min_healthy_time  = "10s"
    healthy_deadline  = "3m"
    progress_deadline = "10m"
    auto_revert       = false
    canary            = 0
  }

  # Tasks of one group run on one node, together.
  group "cache" {
    count = 1

    # Ports are reserved on the node and given to tasks as NOMAD_PORT_<label>.
    network {
      port "db" {
        to = 6379
      }
    }

    # Others find the group by this name.
    service {
      name     = "redis-cache"
      tags     = ["global", "cache"]
      port     = "db"
      provider = "nomad"

      check {
        name     = "alive"
        type     = "tcp"
        interval = "10s"
        timeout  = "2s"
      }
    }

    # What happens on one node when a task ends badly.
    restart {
      attempts = 2
      interval = "30m"
      delay    = "15s"
      mode     = "fail"
    }

    # Space in the allocation's folder.
    ephemeral_disk {
      size = 300
    }

    task "redis" {
      driver = "docker"

      config {
        image = "redis:7"
        ports = ["db"]
      }

      # cpu in MHz, memory in MB.
      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
}
"#;

/// `job init`.
pub async fn init(call: &mut Call<'_>) -> Result<u8, Failure> {
    let name = match call.flags.words.as_slice() {
        [] => DEFAULT_NAME.to_string(),
        [name] => name.clone(),
        _ => return Err(call.usage("This command takes no arguments or one: <filename>")),
    };
    let text = if call.flags.on("short") { SHORT } else { LONG };
    match std::fs::OpenOptions::new().write(true).create_new(true).open(&name) {
        Ok(mut file) => {
            file.write_all(text.as_bytes()).map_err(|e| Failure::new(format!("Failed to write '{name}': {e}")))?;
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Failure::new(format!("Job '{name}' already exists")));
        }
        Err(error) => return Err(Failure::new(format!("Failed to write '{name}': {error}"))),
    }
    call.terminal.line(format!("Example job file written to {name}"));
    Ok(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_examples_are_jobs() {
        for text in [super::SHORT, super::LONG] {
            let inputs = herdsman_jobspec::Inputs::default();
            let parsed = herdsman_jobspec::parse("example", text, &inputs, &herdsman_jobspec::NoHost);
            assert!(parsed.is_ok(), "{}", parsed.map(|_| String::new()).unwrap_or_else(|d| d.render()));
            assert_eq!(herdsman_jobspec::format("example", text).unwrap(), text);
        }
    }
}
