//! A request as handlers see it: method, decoded path parts, the common parameters already understood.

use crate::error::HttpError;
use bytes::Bytes;
use herdsman_expr::duration;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// How long a blocking read waits when the request does not say, and the most it may. Source: wire-notes section 4.
pub const MAX_WAIT: Duration = Duration::from_secs(300);

/// The most parameters a request may have.
pub const MAX_PARAMS: usize = 256;

/// The namespace that is meant when none is named.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The parameters of a request, decoded, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Reads a query string.
    ///
    /// # Errors
    /// There are more than [`MAX_PARAMS`].
    pub fn parse(query: &str) -> Result<Params, HttpError> {
        let mut all = Vec::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            if all.len() == MAX_PARAMS {
                return Err(HttpError::bad_request(format!("more than {MAX_PARAMS} parameters")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            all.push((decode(name, true), decode(value, true)));
        }
        Ok(Params(all))
    }

    /// The first value of a parameter; none when it is absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The first value of a parameter, or the empty text.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Every value of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A truth value: absent is none; Go's spellings are understood.
    ///
    /// # Errors
    /// The value is no truth value.
    pub fn truth(&self, name: &str) -> Result<Option<bool>, HttpError> {
        match self.get(name) {
            None => Ok(None),
            Some(text) => parse_truth(text).map(Some).ok_or_else(|| {
                HttpError::internal(format!(
                    "Failed to parse value of {name:?} ({text}) as a bool: strconv.ParseBool: parsing {text:?}: invalid syntax"
                ))
            }),
        }
    }

    /// A whole number: absent or empty is none.
    ///
    /// # Errors
    /// The value is no whole number.
    pub fn number(&self, name: &str) -> Result<Option<i64>, HttpError> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                HttpError::bad_request(format!(
                    "Failed to parse value of {name:?} ({text}) as a number: strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            }),
        }
    }
}

fn parse_truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Decodes percent escapes, and `+` as a space in parameters. A broken escape stays as it is.
pub fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = if byte == b'%' { hex_pair(bytes.get(at + 1), bytes.get(at + 2)) } else { None };
        match (byte, escaped) {
            (_, Some(value)) => {
                out.push(value);
                at += 3;
                continue;
            }
            (b'+', None) if plus_is_space => out.push(b' '),
            (other, None) => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn hex_pair(high: Option<&u8>, low: Option<&u8>) -> Option<u8> {
    let digit = |b: &u8| char::from(*b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    Some(digit(high?)? << 4 | digit(low?)?)
}

/// A request as handlers see it.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// The decoded path.
    pub path: String,
    /// What stands at the placeholders of the route's path, in order.
    pub parts: Vec<String>,
    pub params: Params,
    /// The query as it was sent.
    pub query: String,
    /// The token of the request; empty: none.
    pub token: String,
    pub body: Bytes,
}

impl Request {
    /// The value of the route's placeholder at this position.
    pub fn part(&self, position: usize) -> &str {
        self.parts.get(position).map(String::as_str).unwrap_or_default()
    }

    /// The namespace asked for.
    pub fn namespace(&self) -> &str {
        match self.params.text("namespace") {
            "" => DEFAULT_NAMESPACE,
            other => other,
        }
    }

    /// The index a blocking read waits to be passed; 0: does not block.
    ///
    /// # Errors
    /// The value is no index.
    pub fn index(&self) -> Result<u64, HttpError> {
        match self.params.text("index") {
            "" => Ok(0),
            text => text.parse().map_err(|_| HttpError::bad_request("Invalid index")),
        }
    }

    /// How long a blocking read may wait.
    ///
    /// # Errors
    /// The value is no duration.
    pub fn wait(&self) -> Result<Duration, HttpError> {
        let text = self.params.text("wait");
        if text.is_empty() {
            return Ok(MAX_WAIT);
        }
        let nanos = duration::parse(text).map_err(|_| HttpError::bad_request("Invalid wait time"))?;
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
        Ok(if wait.is_zero() { MAX_WAIT } else { wait.min(MAX_WAIT) })
    }

    /// Whether tables that may be a little behind will do.
    ///
    /// # Errors
    /// The value is no truth value.
    pub fn stale(&self) -> Result<bool, HttpError> {
        match self.params.get("stale") {
            Some("") => Ok(true),
            Some(text) => parse_truth(text).ok_or_else(|| {
                HttpError::bad_request(format!(
                    "Failed to parse value of \"stale\" ({text}) as a bool: strconv.ParseBool: parsing {text:?}: invalid syntax"
                ))
            }),
            None => Ok(false),
        }
    }

    /// Whether people read the answer.
    pub fn pretty(&self) -> bool {
        self.params.get("pretty").is_some_and(|v| v != "0")
    }

    /// The JSON body; key spelling is the reader's business.
    ///
    /// # Errors
    /// There is no body, or it is not the expected JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        if self.body.is_empty() {
            return Err(HttpError::bad_request("Request body is empty"));
        }
        serde_json::from_slice(&self.body).map_err(|e| HttpError::bad_request(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let params = Params::parse("a=1&b=x%20y+z&c&a=2").unwrap();
        assert_eq!(params.get("a"), Some("1"));
        assert_eq!(params.get("b"), Some("x y z"));
        assert_eq!(params.get("c"), Some(""));
        assert_eq!(params.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(params.number("a"), Ok(Some(1)));
        assert!(params.number("b").is_err());
    }

    #[test]
    fn broken_escapes_stay() {
        assert_eq!(decode("100%", false), "100%");
        assert_eq!(decode("%zz%41", false), "%zzA");
    }
}
