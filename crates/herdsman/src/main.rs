//! The binary: the command line and the agent, under the name it was called by.
//!
//! Called as `nomad` it is the drop-in: the same commands, and the compatible version first.

use herdsman_agent::{commands, guard};
use herdsman_cli::{Command, Environment, Terminal};
use std::process::ExitCode;

/// Threads that run the agent's tasks, at the least; an agent on one core must not stall behind one slow task.
const AGENT_THREADS: usize = 2;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().collect();
    let program = program_name(words.first().map(String::as_str).unwrap_or_default());
    words.drain(..1.min(words.len()));
    if let Some((directory, cgroup_parent)) = guard::wanted(&words) {
        let Ok(runtime) = build_runtime(false) else { return ExitCode::FAILURE };
        runtime.block_on(guard::run(directory, cgroup_parent));
        return ExitCode::SUCCESS;
    }
    let table: Vec<&'static Command> = commands::TABLE.iter().chain(herdsman_cli::table()).collect();
    let mut terminal = Terminal::of_process(program);
    if commands::is_version(&words) {
        terminal.line(commands::version_text(program));
        return ExitCode::SUCCESS;
    }
    let words = commands::rewrite(words);
    let runtime = match build_runtime(commands::is_agent(&words)) {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal.error(format!("{program}: no runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let environment = Environment::of_process();
    let exit = runtime.block_on(herdsman_cli::run(&table, &words, &mut terminal, &environment));
    // A blocking read of standard input must not keep the process.
    runtime.shutdown_background();
    ExitCode::from(exit)
}

fn build_runtime(agent: bool) -> std::io::Result<tokio::runtime::Runtime> {
    if !agent {
        return tokio::runtime::Builder::new_current_thread().enable_all().build();
    }
    let threads = std::thread::available_parallelism().map_or(AGENT_THREADS, |n| n.get().max(AGENT_THREADS));
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()
}

/// The last part of the path the program was called by.
fn program_name(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("nomad") => "nomad",
        _ => "herdsman",
    }
}
