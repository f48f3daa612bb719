//! Completion for shells: the protocol of `COMP_LINE`, and the lines in the shells' own files that switch it on.

use crate::command::{Command, Environment};
use crate::terminal::Terminal;
use crate::{all_flags, find};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Answers what a shell asks while a line is typed, and the flags that install that; none: it is an ordinary call.
pub fn serve(
    table: &[&'static Command],
    words: &[String],
    terminal: &mut Terminal,
    environment: &Environment,
) -> Option<u8> {
    if let Some(line) = environment.get("COMP_LINE") {
        let point = environment.get("COMP_POINT").and_then(|p| p.parse().ok()).unwrap_or(line.len());
        for candidate in candidates(table, line.get(..point).unwrap_or(line)) {
            terminal.line(candidate);
        }
        return Some(0);
    }
    let install = match words.first().map(|w| w.trim_start_matches('-')) {
        Some("autocomplete-install") => true,
        Some("autocomplete-uninstall") => false,
        _ => return None,
    };
    let program = terminal.program().to_string();
    match change_all(environment, &program, install) {
        Ok(touched) if touched.is_empty() => {
            let what = if install {
                "No shell's start file was found to add completion to"
            } else {
                "Completion was not installed"
            };
            terminal.error(what);
            Some(1)
        }
        Ok(touched) => {
            for path in touched {
                let verb = if install { "added to" } else { "removed from" };
                terminal.line(format!("Completion {verb} {}", path.display()));
            }
            Some(0)
        }
        Err(error) => {
            terminal.error(error);
            Some(1)
        }
    }
}

/// What could stand where the line ends.
pub fn candidates(table: &[&'static Command], line: &str) -> Vec<String> {
    let mut words: Vec<String> = line.split_whitespace().skip(1).map(str::to_string).collect();
    let last = if line.ends_with(char::is_whitespace) { String::new() } else { words.pop().unwrap_or_default() };
    let mut found = BTreeSet::new();
    if last.starts_with('-') {
        if let Some((command, _)) = find(table, &words) {
            found.extend(all_flags(command).iter().map(|f| format!("-{}", f.name)));
            found.insert("-help".to_string());
        } else if words.is_empty() {
            found.extend(["-help", "-version", "-autocomplete-install", "-autocomplete-uninstall"].map(str::to_string));
        }
    } else {
        let prefix = words.iter().map(|w| format!("{w} ")).collect::<String>();
        for name in table.iter().flat_map(|c| std::iter::once(&c.name).chain(c.aliases)) {
            let next = name.strip_prefix(&prefix).and_then(|rest| rest.split(' ').next());
            found.extend(next.filter(|n| !n.is_empty()).map(str::to_string));
        }
        let command = find(table, &words).filter(|_| found.is_empty());
        if command.is_some_and(|(command, _)| command.arguments.contains("path")) {
            found.extend(files(&last));
        }
    }
    let dashes = if last.starts_with("--") { "-" } else { "" };
    found
        .into_iter()
        .map(|c| format!("{dashes}{c}"))
        .filter(|c| c.starts_with(&last) || c.starts_with(last.trim_start_matches("--")))
        .collect()
}

/// Files and folders whose names begin so.
fn files(start: &str) -> Vec<String> {
    let (folder, _) = start.rsplit_once('/').map_or(("", start), |(f, n)| (f, n));
    let shown = if folder.is_empty() && start.starts_with('/') {
        "/"
    } else if folder.is_empty() {
        "."
    } else {
        folder
    };
    let lead = if start.contains('/') { format!("{folder}/") } else { String::new() };
    let Ok(entries) = std::fs::read_dir(shown) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| {
            let name = e.file_name().into_string().ok()?;
            let slash = if e.path().is_dir() { "/" } else { "" };
            let whole = format!("{lead}{name}{slash}");
            whole.starts_with(start).then_some(whole)
        })
        .filter(|n| start.contains("/.") || !n.rsplit('/').next().unwrap_or_default().starts_with('.'))
        .collect()
}

/// A shell: its start file below the home folder, and the lines that switch completion on.
struct Shell {
    file: &'static str,
    /// The file is ours alone and made when its folder is there.
    own: bool,
    lines: fn(&str, &str) -> String,
}

const SHELLS: &[Shell] = &[
    Shell { file: ".bashrc", own: false, lines: |program, binary| format!("complete -C {binary} {program}\n") },
    Shell {
        file: ".zshrc",
        own: false,
        lines: |program, binary| {
            format!("autoload -U +X bashcompinit && bashcompinit\ncomplete -o nospace -C {binary} {program}\n")
        },
    },
    Shell {
        file: ".config/fish/completions/{program}.fish",
        own: true,
        lines: |program, binary| {
            format!(
                "function __complete_{program}\n    set -lx COMP_LINE (commandline -cp)\n    {binary}\nend\n\
                 complete -f -c {program} -a \"(__complete_{program})\"\n"
            )
        },
    },
];

fn change_all(environment: &Environment, program: &str, install: bool) -> Result<Vec<PathBuf>, String> {
    let home = environment.get("HOME").ok_or("HOME is not set: there is no shell's start file to change")?;
    let binary = std::env::current_exe().map_err(|e| format!("the path of this program is not known: {e}"))?;
    let binary = binary.to_string_lossy().replace(' ', "\\ ");
    let mut touched = Vec::new();
    for shell in SHELLS {
        let path = Path::new(home).join(shell.file.replace("{program}", program));
        let lines = (shell.lines)(program, &binary);
        let changed =
            if shell.own { change_own(&path, &lines, install) } else { change_shared(&path, &lines, install) };
        if changed.map_err(|e| format!("{}: {e}", path.display()))? {
            touched.push(path);
        }
    }
    Ok(touched)
}

/// A file of our own: written where the shell keeps such files, or removed.
fn change_own(path: &Path, lines: &str, install: bool) -> std::io::Result<bool> {
    if !install {
        return match std::fs::remove_file(path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        };
    }
    let Some(folder) = path.parent() else { return Ok(false) };
    // Whoever has no folder of the shell does not use it.
    if !folder.parent().is_some_and(Path::is_dir) {
        return Ok(false);
    }
    std::fs::create_dir_all(folder)?;
    std::fs::write(path, lines)?;
    Ok(true)
}

/// A file of the user's: lines are added once, or taken out; everything else stays.
fn change_shared(path: &Path, lines: &str, install: bool) -> std::io::Result<bool> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    if install {
        if text.contains(lines) {
            return Ok(true);
        }
        let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        file.write_all(format!("{gap}{lines}").as_bytes())?;
        return Ok(true);
    }
    if !text.contains(lines) {
        return Ok(false);
    }
    let beside = path.with_extension("completion-new");
    std::fs::write(&beside, text.replace(lines, ""))?;
    std::fs::set_permissions(&beside, std::fs::metadata(path)?.permissions())?;
    std::fs::rename(&beside, path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<&'static Command> {
        crate::table().collect()
    }

    #[test]
    fn words_flags_and_families_are_completed() {
        let table = table();
        assert_eq!(candidates(&table, "herdsman job pl"), ["plan"]);
        assert!(candidates(&table, "herdsman ").contains(&"alloc".to_string()));
        assert!(candidates(&table, "herdsman job ").contains(&"periodic".to_string()));
        assert_eq!(candidates(&table, "herdsman job run -det"), ["-detach"]);
        assert_eq!(candidates(&table, "herdsman job run --det"), ["--detach"]);
        assert!(candidates(&table, "herdsman bananas ").is_empty());
    }

    #[test]
    fn start_files_change_once_and_back() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".bashrc"), "alias x=y").unwrap();
        std::fs::create_dir_all(home.path().join(".config/fish")).unwrap();
        let environment = Environment::of([("HOME".to_string(), home.path().to_string_lossy().into_owned())]);
        let read = || std::fs::read_to_string(home.path().join(".bashrc")).unwrap();
        assert_eq!(change_all(&environment, "herdsman", true).unwrap().len(), 2);
        let once = read();
        assert!(once.starts_with("alias x=y\ncomplete -C "), "{once}");
        change_all(&environment, "herdsman", true).unwrap();
        assert_eq!(read(), once);
        assert_eq!(change_all(&environment, "herdsman", false).unwrap().len(), 2);
        assert_eq!(read(), "alias x=y\n");
        assert!(change_all(&environment, "herdsman", false).unwrap().is_empty());
    }
}
