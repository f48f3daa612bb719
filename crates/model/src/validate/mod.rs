//! Validation of jobs: every rule, all errors at once, and warnings.

/// The peer's way to write several errors as one text.
pub fn multi<'a>(errors: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<&str> = errors.into_iter().collect();
    let noun = if items.len() == 1 { "error" } else { "errors" };
    let mut out = format!("{} {noun} occurred:\n", items.len());
    for item in items {
        out.push_str("\t* ");
        out.push_str(item);
        out.push('\n');
    }
    out.push('\n');
    out
}
