//! Functions of paths and files. They work only where the caller allows files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Answer, Args, CallFault, failed};
use crate::eval::Files;
use crate::eval::value::{Type, Value};

/// Longest file read, in bytes.
const MAX_FILE_BYTES: usize = 4 << 20;

fn files<'a>(args: &'a Args<'_>) -> Result<&'a dyn Files, CallFault> {
    args.host.files().ok_or_else(|| CallFault::Call("filesystem function disabled".to_owned()))
}

pub(super) fn abspath(args: &Args<'_>) -> Answer {
    match files(args)?.absolute(args.text(0)) {
        Ok(path) => Ok(Value::string(clean(&path))),
        Err(why) => failed(why),
    }
}

pub(super) fn basename(args: &Args<'_>) -> Answer {
    files(args)?;
    let path = args.text(0);
    let trimmed = path.trim_end_matches('/');
    Ok(Value::string(match (path, trimmed) {
        ("", _) => ".",
        (_, "") => "/",
        (_, trimmed) => trimmed.rsplit('/').next().unwrap_or(trimmed),
    }))
}

pub(super) fn dirname(args: &Args<'_>) -> Answer {
    files(args)?;
    let path = args.text(0);
    Ok(Value::string(match path.rfind('/') {
        Some(at) => clean(path.get(..=at).unwrap_or("/")),
        None => ".".to_owned(),
    }))
}

/// A path without `.`, `..` and doubled slashes, as far as the text alone tells.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if rooted || parts.last().is_some_and(|p| *p != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

fn read(args: &Args<'_>) -> Result<Vec<u8>, CallFault> {
    let path = expand_home(files(args)?, args.text(0))?;
    let bytes = files(args)?.read(&path).map_err(CallFault::Call)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(CallFault::Call(format!("{path} has {} bytes; at most {MAX_FILE_BYTES} are read", bytes.len())));
    }
    Ok(bytes)
}

pub(super) fn file(args: &Args<'_>) -> Answer {
    match String::from_utf8(read(args)?) {
        Ok(text) => Ok(Value::string(text)),
        Err(_) => failed(format!("contents of {} are not valid UTF-8; use filebase64", args.text(0))),
    }
}

pub(super) fn filebase64(args: &Args<'_>) -> Answer {
    Ok(Value::string(STANDARD.encode(read(args)?)))
}

pub(super) fn fileexists(args: &Args<'_>) -> Answer {
    let path = expand_home(files(args)?, args.text(0))?;
    files(args)?.exists(&path).map(Value::Bool).map_err(CallFault::Call)
}

fn expand_home(files: &dyn Files, path: &str) -> Result<String, CallFault> {
    let Some(rest) = path.strip_prefix('~') else { return Ok(path.to_owned()) };
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err(CallFault::Call("cannot expand user-specific home dir".to_owned()));
    }
    match files.home() {
        Some(home) => Ok(format!("{}{rest}", home.trim_end_matches('/'))),
        None => Err(CallFault::Call("the home directory is not known".to_owned())),
    }
}

pub(super) fn pathexpand(args: &Args<'_>) -> Answer {
    expand_home(files(args)?, args.text(0)).map(Value::string)
}

pub(super) fn fileset(args: &Args<'_>) -> Answer {
    let (path, pattern) = (args.text(0), args.text(1));
    let mut found = files(args)?.walk(path).map_err(CallFault::Call)?;
    found.retain(|name| glob(pattern, name));
    Ok(Value::set(Type::String, found.iter().map(Value::string).collect()))
}

/// `*` and `?` within an element, `**` across elements, `[a-z]`, `{a,b}`.
fn glob(pattern: &str, path: &str) -> bool {
    let mut regex = String::from("^");
    let mut rest = pattern;
    let mut alternatives = 0;
    while let Some(c) = rest.chars().next() {
        let mut used = c.len_utf8();
        match c {
            '*' if rest.starts_with("**/") => {
                regex.push_str("(?:.*/)?");
                used = 3;
            }
            '*' if rest.starts_with("**") => {
                regex.push_str(".*");
                used = 2;
            }
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '{' => {
                regex.push_str("(?:");
                alternatives += 1;
            }
            '}' if alternatives > 0 => {
                regex.push(')');
                alternatives -= 1;
            }
            ',' if alternatives > 0 => regex.push('|'),
            '[' | ']' | '-' => regex.push(c),
            c => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
        rest = rest.get(used..).unwrap_or("");
    }
    regex.push('$');
    regex::Regex::new(&regex).is_ok_and(|r| r.is_match(path))
}
