//! Reading configuration files.

use crate::config::hcl::{self, Lines};
use crate::config::tree::{Finding, Severity, check, merge, unfold};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The largest configuration file, bytes.
pub const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The most files one folder may bring.
pub const MAX_FILES: usize = 1024;

/// Why the configuration cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("Error loading configuration from {path}: {cause}")]
    Unreadable { path: PathBuf, cause: String },
    /// The text is its own explanation, with file, line and column.
    #[error("{0}")]
    Malformed(String),
}

/// A reader of HCL: gives the tree, or an explanation.
pub type ReadHcl = fn(name: &str, text: &str) -> Result<hcl::Read, String>;

/// One file as a tree, with what the check of its keys found.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub path: PathBuf,
    pub tree: Map<String, Value>,
    pub findings: Vec<Finding>,
    /// Where keys stand; empty for JSON.
    pub lines: Lines,
}

impl Loaded {
    /// The file, and the line where a key of it stands if that is known.
    pub fn place(&self, key: &str) -> String {
        match self.lines.get(key) {
            Some(line) => format!("{}:{line}", self.path.display()),
            None => self.path.display().to_string(),
        }
    }

    /// Whether the key has a value here.
    pub fn has(&self, key: &str) -> bool {
        let mut names = key.split('.');
        let first = names.next().and_then(|name| self.tree.get(name));
        names.fold(first, |value, name| value?.get(name)).is_some()
    }
}

/// Reads a file, or every `.hcl` and `.json` file of a folder in the order of their names.
///
/// # Errors
/// Something cannot be read or understood.
pub fn load(path: &Path, read_hcl: ReadHcl) -> Result<Vec<Loaded>, LoadError> {
    let unreadable = |cause: String| LoadError::Unreadable { path: path.to_path_buf(), cause };
    let metadata = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?;
    if !metadata.is_dir() {
        return Ok(vec![load_file(path, read_hcl)?]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| unreadable(e.to_string()))? {
        let file = entry.map_err(|e| unreadable(e.to_string()))?.path();
        if is_config_file(&file) {
            files.push(file);
        }
        if files.len() > MAX_FILES {
            return Err(unreadable(format!("the folder has more than {MAX_FILES} configuration files")));
        }
    }
    files.sort();
    files.iter().map(|f| load_file(f, read_hcl)).collect()
}

/// Files that editors leave behind are passed over.
fn is_config_file(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let ours = name.ends_with(".hcl") || name.ends_with(".json");
    ours && !name.starts_with('.') && !name.starts_with('#') && !name.ends_with('~') && path.is_file()
}

fn load_file(path: &Path, read_hcl: ReadHcl) -> Result<Loaded, LoadError> {
    let unreadable = |cause: String| LoadError::Unreadable { path: path.to_path_buf(), cause };
    let size = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?.len();
    if size > MAX_FILE_BYTES {
        return Err(unreadable(format!("{size} bytes, at most {MAX_FILE_BYTES} are read")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
    let name = path.to_string_lossy();
    let is_json = text.trim_start().starts_with('{');
    let bare = |value| hcl::Read { value, lines: Lines::new() };
    let hcl::Read { value, lines } = if text.trim().is_empty() {
        bare(Value::Object(Map::new()))
    } else if is_json {
        bare(serde_json::from_str(&text).map_err(|e| LoadError::Malformed(format!("{name}: {e}")))?)
    } else {
        read_hcl(&name, &text).map_err(LoadError::Malformed)?
    };
    let Value::Object(tree) = unfold(value) else {
        return Err(LoadError::Malformed(format!("{name}: the file does not hold keys and blocks")));
    };
    let findings = check(&tree);
    Ok(Loaded { path: path.to_path_buf(), tree, findings, lines })
}

/// Lays files over each other, later ones over earlier ones.
pub fn combine<'a>(files: impl IntoIterator<Item = &'a Loaded>) -> Map<String, Value> {
    let mut all = Map::new();
    for file in files {
        merge(&mut all, file.tree.clone());
    }
    all
}

/// The errors among findings, as texts that name file and line.
pub fn errors(file: &Loaded) -> Vec<String> {
    let bad = file.findings.iter().filter(|f| f.severity == Severity::Error);
    bad.map(|f| format!("{}: {}", file.place(&f.path), f.message)).collect()
}

/// The warnings among findings, as texts that name file and line.
pub fn warnings(file: &Loaded) -> Vec<String> {
    let soft = file.findings.iter().filter(|f| f.severity == Severity::Warning);
    soft.map(|f| format!("{}: {}", file.place(&f.path), f.message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn no_hcl(name: &str, _: &str) -> Result<hcl::Read, String> {
        Err(format!("{name}: not HCL"))
    }

    #[test]
    fn folders_are_read_in_order_and_later_files_win() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("b.json", r#"{"region": "b"}"#);
        write("a.json", r#"{"region": "a", "datacenter": "x"}"#);
        write("c.json~", "garbage");
        write(".hidden.json", "garbage");
        write("empty.hcl", "\n");
        let files = load(folder.path(), no_hcl).unwrap();
        assert_eq!(files.len(), 3);
        assert_eq!(Value::Object(combine(&files)), json!({"region": "b", "datacenter": "x"}));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        assert!(matches!(load(&file, no_hcl), Err(LoadError::Unreadable { .. })));
        std::fs::write(&file, "{").unwrap();
        assert!(load(&file, no_hcl).unwrap_err().to_string().contains("x.json"));
        std::fs::write(&file, r#"{"bananas": 1}"#).unwrap();
        let loaded = load(&file, no_hcl).unwrap();
        assert_eq!(errors(loaded.first().unwrap()).len(), 1);
    }
}
