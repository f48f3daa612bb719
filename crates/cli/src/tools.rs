//! Commands that need no agent: formatting files, and the version.

use crate::command::{Call, Command, Failure, read_file};
use crate::flags::Flag;
use std::io::Write;
use std::path::{Path, PathBuf};

/// How deep `fmt -recursive` goes.
const MAX_DEPTH: usize = 32;

/// The commands.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "fmt",
        aliases: &[],
        arguments: "[paths...]",
        synopsis: "Rewrites agent config and job files to canonical format",
        about: "Brings files into canonical form and prints the names of those it changed: HCL files given, or all in the \
                folders given, or those of this folder. For \"-\" it reads standard input and prints the result.",
        general: true,
        flags: &[
            Flag::switch("check", "Change nothing; exit status 1 when a file is not in canonical form."),
            Flag::switch("write", "Write the files; true unless set to false or with -check."),
            Flag::switch("list", "Print the names of files that change; true unless set to false."),
            Flag::switch("recursive", "Also in folders within folders."),
        ],
        run: |call| Box::pin(format(call)),
    },
    Command {
        name: "version",
        aliases: &[],
        arguments: "",
        synopsis: "Prints the version",
        about: "Prints the version.",
        general: false,
        flags: &[],
        run: |call| Box::pin(version(call)),
    },
];

async fn version(call: &mut Call<'_>) -> Result<u8, Failure> {
    call.terminal.line(format!("Herdsman v{}", env!("CARGO_PKG_VERSION")));
    Ok(0)
}

async fn format(call: &mut Call<'_>) -> Result<u8, Failure> {
    if matches!(call.flags.words.as_slice(), [only] if only == "-") {
        return format_input(call).await;
    }
    let given = if call.flags.words.is_empty() { vec![".".to_string()] } else { call.flags.words.clone() };
    let mut files = Vec::new();
    for word in &given {
        let path = Path::new(word);
        if path.is_dir() {
            collect(path, call.flags.on("recursive"), 0, &mut files)?;
        } else {
            files.push(path.to_path_buf());
        }
    }
    let check = call.flags.on("check");
    let (write, list) = (call.flags.on_or("write", true) && !check, call.flags.on_or("list", true));
    let mut changed = false;
    let mut faults = Vec::new();
    for file in files {
        match one(&file, write) {
            Ok(false) => {}
            Ok(true) => {
                changed = true;
                if list {
                    call.terminal.line(file.to_string_lossy());
                }
            }
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(Failure::new(faults.join("\n")));
    }
    Ok(u8::from(check && changed))
}

async fn format_input(call: &mut Call<'_>) -> Result<u8, Failure> {
    let text = call.file_or_input("-").await?;
    let formatted = herdsman_jobspec::format("<stdin>", &text).map_err(|d| Failure::new(d.render()))?;
    if call.flags.on("check") {
        return Ok(u8::from(formatted != text));
    }
    call.terminal.raw(formatted.as_bytes());
    Ok(0)
}

fn is_ours(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "hcl" || e == "nomad")
}

fn collect(folder: &Path, recursive: bool, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new(format!("Failed to read {}: {e}", folder.display()));
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    for path in entries {
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if path.is_dir() && !path.is_symlink() {
            if recursive && !hidden && depth < MAX_DEPTH {
                collect(&path, recursive, depth + 1, files)?;
            }
        } else if is_ours(&path) && !hidden {
            files.push(path.strip_prefix(".").map(Path::to_path_buf).unwrap_or(path));
        }
    }
    Ok(())
}

/// Formats one file; whether that changes it.
fn one(path: &Path, write: bool) -> Result<bool, String> {
    let name = path.to_string_lossy().into_owned();
    if !is_ours(path) {
        return Err(format!("Only .nomad and .hcl files can be formatted: {name}"));
    }
    let bytes = read_file(path).map_err(|e| format!("Failed to read {name}: {e}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{name} is not text in UTF-8"))?;
    let formatted = herdsman_jobspec::format(&name, &text).map_err(|d| d.render())?;
    if formatted == text {
        return Ok(false);
    }
    if write {
        replace(path, &formatted).map_err(|e| format!("Failed to write {name}: {e}"))?;
    }
    Ok(true)
}

/// Writes beside the file and moves over it, so that a full disk leaves the old one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let permissions = std::fs::metadata(path)?.permissions();
    let real = std::fs::canonicalize(path)?;
    let mut name = real.clone().into_os_string();
    name.push(".fmt-new");
    let beside = PathBuf::from(name);
    let written = std::fs::OpenOptions::new().write(true).create_new(true).open(&beside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_permissions(permissions)?;
        file.sync_all()
    });
    if let Err(error) = written {
        let _ = std::fs::remove_file(&beside);
        return Err(error);
    }
    std::fs::rename(&beside, &real)
}
