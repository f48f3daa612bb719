//! Texts as Go's JSON writes them.

/// Appends a text in quotes. `html`: the characters that mean something in HTML are escaped too, as Go does unless told
/// otherwise.
pub fn quote(out: &mut String, text: &str, html: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' if html => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn texts_are_escaped_as_go_does() {
        let text = "a\"\\\n\u{1}<\u{2028}é";
        let of = |html| {
            let mut out = String::new();
            quote(&mut out, text, html);
            out
        };
        assert_eq!(of(true), r#""a\"\\\n\u0001\u003c\u2028é""#);
        assert_eq!(of(false), r#""a\"\\\n\u0001<\u2028é""#);
    }
}
