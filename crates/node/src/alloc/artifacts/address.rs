//! Sources in the form of the peer's getter.

use std::collections::BTreeMap;

/// What fetches a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Getter {
    Http,
    Git,
}

/// A source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub getter: Getter,
    /// Up to the query, without the part behind `//`.
    pub url: String,
    /// Directory within what is fetched; empty: all of it.
    pub subdir: String,
    /// The query.
    pub options: BTreeMap<String, String>,
}

const USABLE: &str = "use http, https or git";

impl Address {
    /// Reads a source.
    pub fn read(text: &str) -> Result<Address, String> {
        let (forced, rest) = match text.split_once("::") {
            Some((word, rest)) if !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                (Some(word), rest)
            }
            _ => (None, text),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let rest = detected(rest);
        let (forced, rest) = match rest.strip_prefix("git::") {
            Some(inner) if forced.is_none() => (Some("git"), inner.to_string()),
            Some(inner) => (forced, inner.to_string()),
            None => (forced, rest),
        };
        let (scheme, after) = rest
            .split_once("://")
            .ok_or_else(|| format!("source {text:?} is no address of a remote file; {USABLE}"))?;
        let getter = match (forced, scheme) {
            (Some("git"), "http" | "https" | "ssh" | "git") | (None, "git" | "ssh") => Getter::Git,
            (None | Some("http" | "https"), "http" | "https") => Getter::Http,
            (Some(word), _) => return Err(format!("getter {word:?} with {scheme:?} is not there; {USABLE}")),
            (None, _) => return Err(format!("sources of kind {scheme:?} are not fetched; {USABLE}")),
        };
        let (body, subdir) = after.split_once("//").unwrap_or((after, ""));
        if subdir.split('/').any(|part| part == "..") {
            return Err(format!("source {text:?}: the part behind // leads out of what is fetched"));
        }
        let options = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        });
        Ok(Address {
            getter,
            url: format!("{scheme}://{body}"),
            subdir: subdir.trim_matches('/').to_string(),
            options: options.collect(),
        })
    }

    /// The last part of the path.
    pub fn file_name(&self) -> String {
        let path = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let path = path.split_once('/').map_or("", |(_, path)| path);
        let name = decoded(path.rsplit('/').next().unwrap_or_default());
        if name == "." || name == ".." || name.contains(['/', '\0']) { String::new() } else { name }
    }

    /// The address to ask, with the options that are left.
    pub fn request_url(&self) -> String {
        let pairs: Vec<String> = self.options.iter().map(|(k, v)| format!("{}={}", encoded(k), encoded(v))).collect();
        let subdir = if self.subdir.is_empty() { String::new() } else { format!("//{}", self.subdir) };
        // For a single file the part behind // belongs to its path.
        let url = format!("{}{subdir}", self.url);
        if pairs.is_empty() { url } else { format!("{url}?{}", pairs.join("&")) }
    }
}

/// Short forms of well-known hosts, and `user@host:path`.
fn detected(text: &str) -> String {
    if text.contains("://") {
        return text.to_string();
    }
    for host in ["github.com/", "gitlab.com/", "bitbucket.org/"] {
        let Some(rest) = text.strip_prefix(host) else { continue };
        let mut parts = rest.splitn(3, '/');
        let (Some(owner), Some(repo)) = (parts.next(), parts.next()) else { break };
        let repo = repo.strip_suffix(".git").unwrap_or(repo);
        let below = parts.next().map(|rest| format!("//{}", rest.trim_start_matches('/'))).unwrap_or_default();
        return format!("git::https://{host}{owner}/{repo}.git{below}");
    }
    match text.split_once(':') {
        Some((place, path)) if place.contains('@') && !place.contains('/') => format!("git::ssh://{place}/{path}"),
        _ => text.to_string(),
    }
}

/// `%41` and `+` as what they stand for.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at.saturating_add(1)..at.saturating_add(3)).filter(|_| *byte == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(value) => {
                out.push(value);
                at = at.saturating_add(3);
            }
            None => {
                out.push(if *byte == b'+' { b' ' } else { *byte });
                at = at.saturating_add(1);
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// The address as it may be shown.
pub fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_string() };
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest.get(..host_end).and_then(|place| place.rsplit_once('@')) {
        Some((_, host)) => format!("{scheme}://{host}{}", rest.get(host_end..).unwrap_or_default()),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_the_getters_forms() {
        let read = |text: &str| Address::read(text).map(|a| (a.getter, a.url, a.subdir));
        let ok = |getter, url: &str, subdir: &str| Ok((getter, url.to_string(), subdir.to_string()));
        assert_eq!(read("http://h/a/b.tar.gz?x=1"), ok(Getter::Http, "http://h/a/b.tar.gz", ""));
        assert_eq!(read("git::https://h/r.git//sub/dir?ref=v1"), ok(Getter::Git, "https://h/r.git", "sub/dir"));
        assert_eq!(read("github.com/o/r"), ok(Getter::Git, "https://github.com/o/r.git", ""));
        assert_eq!(read("github.com/o/r//sub"), ok(Getter::Git, "https://github.com/o/r.git", "sub"));
        assert_eq!(read("git::git@h.example:o/r.git"), ok(Getter::Git, "ssh://git@h.example/o/r.git", ""));
        assert_eq!(read("git@h.example:o/r.git"), ok(Getter::Git, "ssh://git@h.example/o/r.git", ""));
        for bad in [
            "/etc/passwd",
            "./x",
            "file:///etc/passwd",
            "git::file:///x",
            "s3::https://h/b",
            "ftp://h/x",
            "git::https://h/r//../x",
            "",
        ] {
            assert!(Address::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn options_become_the_query() {
        let mut address = Address::read("http://h/p%20q/f.bin?a=1&checksum=md5:00").unwrap();
        assert_eq!(address.options.remove("checksum").as_deref(), Some("md5:00"));
        address.options.insert("k v".into(), "x&y".into());
        assert_eq!(address.request_url(), "http://h/p%20q/f.bin?a=1&k%20v=x%26y");
        assert_eq!(address.file_name(), "f.bin");
        assert_eq!(Address::read("http://h/a/..%2fx").unwrap().file_name(), "");
        assert_eq!(Address::read("http://h").unwrap().file_name(), "");
        assert_eq!(without_password("https://u:p@h/x@y"), "https://h/x@y");
    }
}
