//! Star globs, as datacenter lists use them (`dc*`, `*-eu`).

/// Whether `text` matches `pattern`, in which `*` stands for any run of characters, the empty one
/// included. Every other character stands for itself; there is no escape.
///
/// Takes time in proportion to `pattern.len() * text.len()` at most, for any number of stars.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        // No star at all: the whole text must have been the pattern.
        return rest.is_empty();
    };
    for part in parts {
        // The leftmost place is the right one: it leaves the most for what follows.
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether any of `patterns` matches `text`.
#[must_use]
pub fn matches_any<P: AsRef<str>>(patterns: &[P], text: &str) -> bool {
    patterns.iter().any(|p| matches(p.as_ref(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, spelled out: a star takes nothing or one more character.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => naive(rest, text) || (!text.is_empty() && naive(pattern, &text[1..])),
            Some((c, rest)) => text.first() == Some(c) && naive(rest, &text[1..]),
        }
    }

    #[test]
    fn datacenters() {
        assert!(matches("*", "dc1"));
        assert!(matches("*", ""));
        assert!(matches("dc*", "dc1"));
        assert!(matches("dc*", "dc"));
        assert!(matches("*-eu", "dc1-eu"));
        assert!(matches("d*c*1", "dxxcyy1"));
        assert!(matches("dc1", "dc1"));
        assert!(!matches("dc1", "dc12"));
        assert!(!matches("DC1", "dc1"));
        assert!(!matches("", "dc1"));
        assert!(!matches("a*a", "a"));
        assert!(matches("[dc]", "[dc]"));
        assert!(matches_any(&["eu-*", "dc1"], "dc1"));
        assert!(!matches_any::<&str>(&[], "dc1"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn equals_the_naive_matcher(pattern in "[ab*]{0,8}", text in "[ab]{0,8}") {
            prop_assert_eq!(matches(&pattern, &text), naive(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn arbitrary_text_never_panics(pattern in any::<String>(), text in any::<String>()) {
            let _ = matches(&pattern, &text);
        }
    }
}
