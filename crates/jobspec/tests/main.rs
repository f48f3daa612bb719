//! Job files against the recorded answers, and against chance.
#![allow(clippy::panic)]

mod behaviour;
mod errors;
mod functions;
mod gate;
mod goldens;
mod limits;
mod table;

use std::path::PathBuf;

/// The recorded answers.
fn goldens_dir() -> PathBuf {
    let shared = match std::env::var_os("HERDSMAN_SHARED") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let dir = shared.join("compat/goldens");
    assert!(
        dir.is_dir(),
        "no recorded answers in {}: set HERDSMAN_SHARED to the directory that holds compat/goldens",
        dir.display()
    );
    dir
}

fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The files of a directory with an ending, as name without the ending and text.
fn files(dir: &str, ending: &str) -> Vec<(String, String)> {
    let dir = goldens_dir().join(dir);
    let mut out = Vec::new();
    for entry in std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.expect("a directory entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if let Some(name) = name.strip_suffix(ending) {
            out.push((name.to_owned(), read(&path)));
        }
    }
    out.sort();
    assert!(!out.is_empty(), "no *{ending} in {}", dir.display());
    out
}
