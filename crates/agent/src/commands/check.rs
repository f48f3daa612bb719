//! `config validate` and `check`: what works here, offline.

use crate::commands::run_agent::try_paths;
use herdsman_cli::jobfile::{self, Verdict};
use herdsman_cli::terminal::Colour;
use herdsman_cli::{Call, Failure};
use serde_json::json;
use std::path::Path;

/// `config validate`
pub async fn validate(call: &mut Call<'_>) -> Result<u8, Failure> {
    if call.flags.words.is_empty() {
        return Err(call.usage("This command takes at least one argument: <path>"));
    }
    let paths: Vec<&Path> = call.flags.words.iter().map(Path::new).collect();
    let warnings = try_paths(&paths).map_err(Failure::new)?;
    for warning in warnings {
        call.terminal.line(format!("warning: {warning}"));
    }
    call.terminal.line("Configuration is valid!");
    Ok(0)
}

/// What `check` says of one path.
struct Checked {
    path: String,
    verdict: Verdict,
    messages: Vec<String>,
}

/// `check`
pub async fn check(call: &mut Call<'_>) -> Result<u8, Failure> {
    if call.flags.words.is_empty() {
        return Err(call.usage("This command takes at least one argument: <path>"));
    }
    let checked: Vec<Checked> = call.flags.words.clone().iter().map(|p| one(p)).collect();
    let refused = checked.iter().any(|c| c.verdict == Verdict::Refused);
    if call.flags.on("json") {
        let list: Vec<_> = checked
            .iter()
            .map(|c| json!({"Path": c.path, "Verdict": c.verdict.as_str(), "Messages": c.messages}))
            .collect();
        call.terminal.line(serde_json::to_string_pretty(&list).unwrap_or_default());
        return Ok(u8::from(refused));
    }
    for one in checked {
        let colour = match one.verdict {
            Verdict::Works => Colour::Green,
            Verdict::Warns => Colour::Yellow,
            Verdict::Refused => Colour::Red,
        };
        let word = call.terminal.paint(colour, one.verdict.as_str());
        call.terminal.line(format!("{}: {word}", one.path));
        for message in one.messages {
            call.terminal.line(format!("  {}", message.replace('\n', "\n  ")));
        }
    }
    Ok(u8::from(refused))
}

/// A file with a job block, or JSON with one, is a job file; anything else is agent configuration.
fn one(path: &str) -> Checked {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let (verdict, messages) = if jobfile::looks_like_job(&text) {
        jobfile::check(path, &text)
    } else {
        match try_paths(&[Path::new(path)]) {
            Ok(warnings) if warnings.is_empty() => (Verdict::Works, Vec::new()),
            Ok(warnings) => (Verdict::Warns, warnings),
            Err(errors) => (Verdict::Refused, errors.lines().map(str::to_string).collect()),
        }
    };
    Checked { path: path.to_string(), verdict, messages }
}
