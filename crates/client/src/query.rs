//! The parameters of a request.

use crate::Options;
use std::fmt::Write;
use std::time::Duration;

/// The parameters of one request.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Above 0 the read blocks until the index is past this.
    pub index: u64,
    /// How long a blocking read may wait; none: the agent's default.
    pub wait: Option<Duration>,
    pub prefix: String,
    pub filter: String,
    /// 0: all.
    pub per_page: u32,
    pub next_token: String,
    pub stale: bool,
    /// Overrides the client's namespace when set.
    pub namespace: Option<String>,
    /// Overrides the client's region when set.
    pub region: Option<String>,
    /// Anything else, in order.
    pub params: Vec<(String, String)>,
}

impl Query {
    /// No parameters.
    pub fn none() -> Query {
        Query::default()
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Query {
        self.params.push((name.to_string(), value.into()));
        self
    }

    /// Blocks until the index is past this, for at most this long.
    #[must_use]
    pub fn after(mut self, index: u64, wait: Duration) -> Query {
        self.index = index;
        self.wait = Some(wait);
        self
    }

    /// The request target: path and encoded parameters.
    pub(crate) fn target(&self, path: &str, options: &Options) -> String {
        let mut pairs: Vec<(&str, String)> = Vec::new();
        let namespace = self.namespace.as_deref().unwrap_or(&options.namespace);
        let region = self.region.as_deref().unwrap_or(&options.region);
        for (name, value) in [("namespace", namespace), ("region", region), ("prefix", &self.prefix)] {
            if !value.is_empty() {
                pairs.push((name, value.to_string()));
            }
        }
        for (name, value) in [("filter", &self.filter), ("next_token", &self.next_token)] {
            if !value.is_empty() {
                pairs.push((name, value.clone()));
            }
        }
        if self.index > 0 {
            pairs.push(("index", self.index.to_string()));
        }
        if let Some(wait) = self.wait {
            pairs.push(("wait", format!("{}ms", wait.as_millis())));
        }
        if self.per_page > 0 {
            pairs.push(("per_page", self.per_page.to_string()));
        }
        if self.stale {
            pairs.push(("stale", String::new()));
        }
        for (name, value) in &self.params {
            pairs.push((name, value.clone()));
        }
        let mut target = path.to_string();
        for (position, (name, value)) in pairs.iter().enumerate() {
            target.push(if position == 0 { '?' } else { '&' });
            target.push_str(&encode_segment(name));
            target.push('=');
            target.push_str(&encode_segment(value));
        }
        target
    }
}

/// Percent-encodes everything that is not unreserved, `/` included, so that it fits one path segment or parameter.
pub fn encode_segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded() {
        let options = Options { namespace: "team a".into(), ..Options::default() };
        let query = Query { index: 7, filter: "a == \"b\"".into(), stale: true, ..Query::default() };
        assert_eq!(
            query.with("x", "1/2").target("/v1/jobs", &options),
            "/v1/jobs?namespace=team%20a&filter=a%20%3D%3D%20%22b%22&index=7&stale=&x=1%2F2"
        );
        assert_eq!(Query::none().target("/v1/jobs", &Options::default()), "/v1/jobs");
    }
}
