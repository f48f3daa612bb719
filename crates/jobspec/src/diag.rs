//! Messages about a file: where, what, and what would be right.

use std::fmt::Write as _;
use std::sync::Arc;

use unicode_segmentation::UnicodeSegmentation;

/// Most messages kept for one input; the rest is counted in a last message.
pub const MAX_DIAGNOSTICS: usize = 100;

/// Longest source line quoted under a message, in characters.
const MAX_QUOTED_LINE: usize = 160;

/// A range of bytes in a source text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One after the last byte.
    pub end: usize,
}

impl Span {
    /// A span from byte `start` to before byte `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// The smallest span that holds both.
    pub fn to(self, other: Span) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The empty span at the start of this one.
    pub fn head(self) -> Self {
        Self { start: self.start, end: self.start }
    }
}

/// A named text that spans point into.
#[derive(Debug)]
pub struct Source {
    name: String,
    text: String,
    lines: Vec<usize>,
}

/// Line and column, both from 1; columns count what a reader sees as one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

impl Source {
    /// Takes a text under the name that messages show.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        let text = text.into();
        let mut lines = vec![0];
        lines.extend(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1));
        Arc::new(Self { name: name.into(), text, lines })
    }

    /// The name given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where a byte offset is.
    pub fn position(&self, offset: usize) -> Position {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let column = self.text.get(start..end).map_or(0, |t| t.graphemes(true).count()) + 1;
        Position { line, column }
    }

    /// The text of a line (from 1), without its end.
    pub fn line(&self, line: usize) -> &str {
        let Some(&start) = self.lines.get(line.saturating_sub(1)) else { return "" };
        let end = self.lines.get(line).map_or(self.text.len(), |next| next - 1);
        self.text.get(start..end).unwrap_or("").trim_end_matches('\r')
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The input is refused.
    Error,
    /// The input is taken; the reader should know something.
    Warning,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// A few words that name the kind of fault.
    pub summary: String,
    /// What exactly is wrong and what is expected.
    pub detail: String,
    /// The text it is about and where in it; absent for what has no place (a variable nobody set).
    pub at: Option<(Arc<Source>, Span)>,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(source: &Arc<Source>, span: Span, summary: &str, detail: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            summary: summary.to_owned(),
            detail: detail.into(),
            at: Some((Arc::clone(source), span)),
        }
    }

    /// A warning at a place.
    pub fn warning(source: &Arc<Source>, span: Span, summary: &str, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(source, span, summary, detail) }
    }

    /// An error without a place.
    pub fn nowhere(summary: &str, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Error, summary: summary.to_owned(), detail: detail.into(), at: None }
    }

    /// Where it starts.
    pub fn position(&self) -> Option<Position> {
        self.at.as_ref().map(|(source, span)| source.position(span.start))
    }

    /// `file:line,column-column: Summary; detail`, the form HTTP clients see; `<nil>` without a place.
    pub fn compact(&self) -> String {
        let Some((source, span)) = &self.at else {
            return format!("<nil>: {}; {}", self.summary, self.detail);
        };
        let (from, to) = (source.position(span.start), source.position(span.end));
        let end = if from.line == to.line { to.column.to_string() } else { format!("{},{}", to.line, to.column) };
        format!("{}:{},{}-{end}: {}; {}", source.name(), from.line, from.column, self.summary, self.detail)
    }

    /// Several lines for people: message, place, the source line and a caret under the place.
    pub fn render(&self) -> String {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let mut out = format!("{word}: {}\n", self.summary);
        if let Some((source, span)) = &self.at {
            let from = source.position(span.start);
            let to = source.position(span.end);
            let number = from.line.to_string();
            let pad = " ".repeat(number.len());
            let _ = writeln!(out, "{pad}--> {}:{}:{}", source.name(), from.line, from.column);
            let line = source.line(from.line);
            let shown: String = line.graphemes(true).take(MAX_QUOTED_LINE).collect();
            let _ = writeln!(out, "{pad} |\n{number} | {shown}");
            if from.column <= MAX_QUOTED_LINE {
                let last = if to.line == from.line { to.column } else { line.graphemes(true).count() + 1 };
                let width = last.saturating_sub(from.column).clamp(1, MAX_QUOTED_LINE);
                // Tabs stay tabs, so that the caret is under its place whatever their width.
                let lead: String =
                    line.graphemes(true).take(from.column - 1).map(|g| if g == "\t" { '\t' } else { ' ' }).collect();
                let _ = writeln!(out, "{pad} | {lead}{}", "^".repeat(width));
            }
        }
        for line in self.detail.lines() {
            let _ = writeln!(out, "  {line}");
        }
        out
    }
}

/// All messages about one input.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    dropped: usize,
}

impl Diagnostics {
    /// Adds one; the same message at the same place is kept once.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let same = |d: &Diagnostic| {
            d.summary == diagnostic.summary
                && d.detail == diagnostic.detail
                && d.at.as_ref().map(|a| a.1) == diagnostic.at.as_ref().map(|a| a.1)
        };
        if self.list.iter().any(same) {
            return;
        }
        if self.list.len() >= MAX_DIAGNOSTICS {
            self.dropped += 1;
        } else {
            self.list.push(diagnostic);
        }
    }

    /// Takes over all of another list.
    pub fn append(&mut self, other: Diagnostics) {
        self.dropped += other.dropped;
        for diagnostic in other.list {
            self.push(diagnostic);
        }
    }

    /// The messages.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }

    /// Those that came after the first so many.
    pub fn since(&mut self, count: usize) -> impl Iterator<Item = &mut Diagnostic> {
        self.list.iter_mut().skip(count)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether one of them is an error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error) || self.dropped > 0
    }

    /// The errors and the warnings, apart.
    pub fn split(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        self.list.into_iter().partition(|d| d.severity == Severity::Error)
    }

    /// All in the compact form, one per line.
    pub fn compact(&self) -> String {
        let lines: Vec<String> = self.list.iter().map(Diagnostic::compact).collect();
        self.with_count(lines.join("\n"), "\n")
    }

    /// All in the form for people, an empty line between.
    pub fn render(&self) -> String {
        let blocks: Vec<String> = self.list.iter().map(Diagnostic::render).collect();
        self.with_count(blocks.join("\n"), "\n")
    }

    fn with_count(&self, text: String, gap: &str) -> String {
        if self.dropped == 0 { text } else { format!("{text}{gap}and {} other diagnostic(s)", self.dropped) }
    }

    /// Orders the messages by file and place, as a reader meets them.
    pub fn sort(&mut self) {
        self.list.sort_by_key(|d| d.at.as_ref().map(|(s, span)| (s.name().to_owned(), span.start)));
    }
}

impl std::fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.compact())
    }
}

impl std::error::Error for Diagnostics {}

/// The nearest of the known names, if one is near enough to be what was meant.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const MAX_NAME: usize = 64;
    if given.len() > MAX_NAME || given.chars().count() < 2 {
        return None;
    }
    let limit = (given.chars().count() / 3).clamp(1, 2);
    known
        .into_iter()
        .filter(|name| name.len() <= MAX_NAME)
        // Neighbours that changed places count as one edit.
        .map(|name| (strsim::osa_distance(given, name), name))
        .filter(|(d, _)| *d > 0 && *d <= limit)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_near_names_only() {
        assert_eq!(nearest("datacentres", ["datacenters", "driver"]), Some("datacenters"));
        assert_eq!(nearest("drive", ["driver", "user"]), Some("driver"));
        assert_eq!(nearest("flavour", ["driver", "user"]), None);
        assert_eq!(nearest("tusk", ["task", "user"]), Some("task"));
    }

    #[test]
    fn renders_the_line_with_a_caret() {
        let source = Source::new("x.hcl", "job \"x\" {\n\tflavour = 1\n}\n");
        let d = Diagnostic::error(&source, Span::new(11, 18), "Unsupported argument", "No such argument.");
        assert_eq!(d.compact(), "x.hcl:2,2-9: Unsupported argument; No such argument.");
        let text = d.render();
        assert!(text.contains(" --> x.hcl:2:2\n"), "{text}");
        assert!(text.contains("2 | \tflavour = 1\n  | \t^^^^^^^\n"), "{text}");
    }
}
