//! Commands against recorded answers of the API: what they print is compared with `tests/transcripts`, and the columns and
//! labels in it with the recorded transcripts of the peer.
//!
//! A transcript begins with the command; lines with `#` say what surrounds it:
//! `# now SECONDS` the clock, `# api NUMBER...` recorded answers, `# answer METHOD PATH STATUS INDEX BODY` others (answers
//! to one path are given in order, the last again and again), `# like NAME` the transcript of the peer whose columns and
//! labels must be there, `# stdin TEXT`. `UPDATE_TRANSCRIPTS=1` writes what is printed into the files.

#![allow(clippy::unwrap_used, clippy::panic)]

mod server;

use herdsman_cli::{Environment, Terminal};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Memory that commands print into.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// The folder of the recorded answers and transcripts.
fn goldens() -> PathBuf {
    let shared = std::env::var("HERDSMAN_SHARED")
        .map_or_else(|_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let goldens = shared.join("compat/goldens");
    assert!(goldens.is_dir(), "the recorded answers are not at {}: set HERDSMAN_SHARED", goldens.display());
    goldens
}

struct Transcript {
    head: String,
    words: Vec<String>,
    now: i64,
    answers: Vec<server::Answer>,
    like: Option<String>,
    stdin: Option<String>,
    expected: String,
}

fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

fn read(path: &Path, goldens: &Path) -> Transcript {
    let text = std::fs::read_to_string(path).unwrap();
    let end = text.find("--- exit").unwrap_or(text.len());
    let (head, expected) = text.split_at(end);
    let files = goldens.join("cli/files").to_string_lossy().into_owned();
    let mut transcript = Transcript {
        head: head.to_string(),
        words: Vec::new(),
        now: 0,
        answers: Vec::new(),
        like: None,
        stdin: None,
        expected: expected.to_string(),
    };
    for line in head.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            transcript.words = split(&command.replace("{files}", &files));
        } else if let Some(now) = line.strip_prefix("# now ") {
            transcript.now = now.parse::<i64>().unwrap() * 1_000_000_000;
        } else if let Some(numbers) = line.strip_prefix("# api ") {
            let recorded = numbers.split(' ').map(|n| server::Answer::recorded(&goldens.join("api"), n));
            transcript.answers.extend(recorded);
        } else if let Some(answer) = line.strip_prefix("# answer ") {
            transcript.answers.push(server::Answer::written(answer));
        } else if let Some(name) = line.strip_prefix("# like ") {
            transcript.like = Some(name.to_string());
        } else if let Some(stdin) = line.strip_prefix("# stdin ") {
            transcript.stdin = Some(stdin.replace("\\n", "\n"));
        } else {
            assert!(line.is_empty(), "{}: what is {line:?}?", path.display());
        }
    }
    transcript
}

async fn play(transcript: &Transcript, goldens: &Path) -> String {
    let server = server::start(transcript.answers.clone()).await;
    let variables = [("NOMAD_ADDR".to_string(), server.address.clone()), ("TZ".to_string(), "UTC".to_string())];
    let stdin = transcript.stdin.clone().unwrap_or_default();
    let environment = Environment::of(variables).at_time(transcript.now).with_input(stdin.as_bytes());
    let (out, err) = (Memory::default(), Memory::default());
    let mut terminal = Terminal::into("herdsman", Box::new(out.clone()), Box::new(err.clone()));
    let table: Vec<_> = herdsman_cli::table().collect();
    let exit = herdsman_cli::run(&table, &transcript.words, &mut terminal, &environment).await;
    let mut text = format!("--- exit {exit}\n--- stdout\n{}", out.text());
    if !text.ends_with('\n') {
        text.push_str("\n(no newline at end)\n");
    }
    let _ = write!(text, "--- stderr\n{}", err.text());
    let files = goldens.join("cli/files").to_string_lossy().into_owned();
    text.replace(&files, "{files}").replace(&server.address, "{address}")
}

/// Titles of columns, and names before an equals sign, of an output.
fn labels(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some((name, _)) = trimmed.split_once(" = ").filter(|(n, _)| !n.contains('.')) {
            found.insert(format!("{} =", name.trim()));
            continue;
        }
        let cells: Vec<&str> = trimmed.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let title =
            |c: &&str| c.starts_with(|f: char| f.is_ascii_uppercase()) && !c.contains(|c: char| c.is_ascii_digit());
        if cells.len() > 1 && cells.iter().all(title) {
            found.insert(cells.join(" | "));
        }
    }
    found
}

#[tokio::test]
async fn commands_print_what_the_transcripts_say() {
    let goldens = goldens();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 40, "transcripts are missing");
    let update = std::env::var_os("UPDATE_TRANSCRIPTS").is_some();
    let mut faults = String::new();
    for path in paths {
        let transcript = read(&path, &goldens);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let printed = play(&transcript, &goldens).await;
        if let Some(like) = &transcript.like {
            let theirs = std::fs::read_to_string(goldens.join("cli").join(format!("{like}.txt"))).unwrap();
            let ours = labels(&printed);
            let theirs = theirs.split_once("--- stdout").map_or("", |(_, printed)| printed);
            for label in labels(theirs).difference(&ours) {
                let _ = writeln!(faults, "{name}: {label:?} of {like} is missing");
            }
        }
        if update {
            std::fs::write(&path, format!("{}{printed}", transcript.head)).unwrap();
        } else if printed != transcript.expected {
            let _ = writeln!(faults, "{name}: expected\n{}\nprinted\n{printed}", transcript.expected);
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

#[tokio::test]
async fn every_command_explains_itself() {
    let table: Vec<_> = herdsman_cli::table().collect();
    let mut names = BTreeSet::new();
    for command in &table {
        for name in std::iter::once(&command.name).chain(command.aliases) {
            assert!(names.insert(*name), "two commands are called {name}");
        }
        let flags = herdsman_cli::all_flags(command);
        let distinct: BTreeSet<&str> = flags.iter().map(|f| f.name).collect();
        assert_eq!(distinct.len(), flags.len(), "{} has a flag twice", command.name);
        let mut words = split(command.name);
        words.push("-h".to_string());
        let out = Memory::default();
        let mut terminal = Terminal::into("herdsman", Box::new(out.clone()), Box::new(Memory::default()));
        assert_eq!(herdsman_cli::run(&table, &words, &mut terminal, &Environment::default()).await, 0);
        let text = out.text();
        assert!(text.starts_with(&format!("Usage: herdsman {}", command.name)), "{text}");
        assert!(flags.iter().all(|f| text.contains(&format!("  -{}", f.name))), "{text}");
    }
}

#[tokio::test]
async fn flags_are_those_of_the_table_of_commands() {
    let table = std::fs::read_to_string(goldens().join("../cli.tsv")).unwrap();
    let ours: Vec<_> = herdsman_cli::table().collect();
    let mut missing = Vec::new();
    let mut compared = 0;
    for row in table.lines().skip(1) {
        let mut cells = row.split('\t');
        let (name, flags) = (cells.next().unwrap(), cells.next().unwrap_or_default());
        // Our check is another command than the hidden one of the peer.
        let Some(command) = ours.iter().find(|c| c.name == name || c.aliases.contains(&name)) else { continue };
        compared += 1;
        let known: BTreeSet<&str> = command.flags.iter().map(|f| f.name).collect();
        for flag in flags.split(',').filter_map(|f| f.trim().strip_prefix('-')).filter(|f| !f.is_empty()) {
            let flag = flag.split(['=', '(']).next().unwrap();
            if !known.contains(flag) && !ABSENT.contains(&(command.name, flag)) {
                missing.push(format!("{name} -{flag}"));
            }
        }
    }
    assert!(compared > 90, "only {compared} rows were compared");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Flags of the peer that are refused here: what they need does not exist here.
const ABSENT: &[(&str, &str)] = &[("job init", "connect"), ("job init", "template"), ("job init", "list-templates")];
