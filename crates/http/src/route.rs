//! Matching a request to a route.
//!
//! A path pattern is made of literal text, `:` (one segment) and `*` (one character or more, slashes included, because job
//! ids and variable paths may hold slashes). The first pattern of the table that matches wins, so patterns with a literal
//! verb behind `*` stand before the one without.

/// Matches a decoded path against a pattern; the values of the placeholders in order.
pub fn match_path(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = path;
    let mut pattern = pattern;
    while let Some(at) = pattern.find([':', '*']) {
        let (literal, tail) = pattern.split_at(at);
        rest = rest.strip_prefix(literal)?;
        let (mark, after) = tail.split_at(1);
        let next_literal = after.split([':', '*']).next().unwrap_or_default();
        let end = if mark == ":" {
            rest.find('/').unwrap_or(rest.len())
        } else if next_literal.is_empty() {
            rest.len()
        } else {
            // The verb is a suffix: what is before its last occurrence is the id.
            rest.rfind(next_literal)?
        };
        if end == 0 {
            return None;
        }
        let (value, remaining) = rest.split_at(end);
        parts.push(value.to_string());
        rest = remaining;
        pattern = after;
    }
    (rest == pattern).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_hold_slashes() {
        let parts = |pattern, path| match_path(pattern, path);
        assert_eq!(parts("/v1/jobs", "/v1/jobs"), Some(vec![]));
        assert_eq!(parts("/v1/job/*/plan", "/v1/job/a/b/plan"), Some(vec!["a/b".to_string()]));
        assert_eq!(parts("/v1/job/*/plan", "/v1/job/a/plan/x"), None);
        assert_eq!(parts("/v1/job/*", "/v1/job/a/b"), Some(vec!["a/b".to_string()]));
        assert_eq!(parts("/v1/job/*", "/v1/job/"), None);
        assert_eq!(parts("/v1/node/:/drain", "/v1/node/x/drain"), Some(vec!["x".to_string()]));
        assert_eq!(parts("/v1/node/:/drain", "/v1/node/x/y/drain"), None);
        assert_eq!(
            parts("/v1/job/*/versions/:/tag", "/v1/job/a/b/versions/v1/tag"),
            Some(vec!["a/b".to_string(), "v1".to_string()])
        );
    }
}
