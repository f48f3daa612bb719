//! Where an agent listens: a TCP address or a Unix socket.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an agent listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Why an address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("the address {0:?} does not begin with http:// or unix://, for example http://127.0.0.1:4646")]
    Scheme(String),
    #[error("the address {0:?} asks for TLS, which this version does not speak yet; use http:// or unix://")]
    Tls(String),
    #[error("the address {0:?} has no host, or its port is no number from 1 to 65535")]
    Host(String),
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.is_empty() { Err(BadAddress::Host(text.into())) } else { Ok(Address::Unix(path.into())) };
        }
        if text.starts_with("https://") {
            return Err(BadAddress::Tls(text.into()));
        }
        let rest = text.strip_prefix("http://").ok_or_else(|| BadAddress::Scheme(text.into()))?;
        let authority = rest.split('/').next().unwrap_or_default();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = split_port(authority).ok_or_else(|| BadAddress::Host(text.into()))?;
        if host.is_empty() {
            return Err(BadAddress::Host(text.into()));
        }
        Ok(Address::Tcp { host, port })
    }
}

/// Splits `host:port`, `[v6]:port` and either without a port (80).
fn split_port(authority: &str) -> Option<(String, u16)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let port = match after.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if after.is_empty() => 80,
            None => return None,
        };
        return Some((host.to_string(), port));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => Some((host.to_string(), port.parse().ok()?)),
        None => Some((authority.to_string(), 80)),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "http://{host}:{port}"),
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl Address {
    /// The value of the `Host` header.
    pub fn host_header(&self) -> String {
        match self {
            Address::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Tcp { host, port } => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood() {
        let tcp = |host: &str, port| Address::Tcp { host: host.to_string(), port };
        assert_eq!("http://127.0.0.1:4646".parse(), Ok(tcp("127.0.0.1", 4646)));
        assert_eq!("http://[::1]:4646/ui".parse(), Ok(tcp("::1", 4646)));
        assert_eq!("http://example".parse(), Ok(tcp("example", 80)));
        assert_eq!("unix:///run/a.sock".parse(), Ok(Address::Unix("/run/a.sock".into())));
        assert!(matches!("https://a".parse::<Address>(), Err(BadAddress::Tls(_))));
        assert!(matches!("127.0.0.1:4646".parse::<Address>(), Err(BadAddress::Scheme(_))));
        assert!(matches!("http://:99999".parse::<Address>(), Err(BadAddress::Host(_))));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,60}") {
            let _ = text.parse::<Address>();
            let _ = format!("http://{text}").parse::<Address>();
        }
    }
}
