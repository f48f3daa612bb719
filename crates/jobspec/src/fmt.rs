//! The canonical form of a file: indentation by brackets, one blank between tokens, equals signs and comments of
//! neighbouring lines in one column. Comments, empty lines and the text of strings stay as they are.

use unicode_segmentation::UnicodeSegmentation;

use crate::diag::{Diagnostics, Source};
use crate::hcl::{self, is_ident_continue, is_ident_start};

/// Writes a native text in canonical form; refuses one that does not parse.
pub fn format(name: &str, text: &str) -> Result<String, Diagnostics> {
    let source = Source::new(name, text);
    hcl::parse_native(&source, hcl::Options::default())?;
    let mut lines = lines(text);
    indent(&mut lines);
    align_assignments(&mut lines);
    align_comments(&mut lines);
    let mut out = String::with_capacity(text.len());
    for line in &lines {
        let body = line.text();
        out.push_str(body.trim_end_matches([' ', '\t']));
        out.push('\n');
    }
    if !text.ends_with('\n') {
        out.pop();
    }
    Ok(out)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Literal,
    Open,
    Close,
    Operator,
    Comment,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
    /// Whether a blank stood before it.
    spaced: bool,
}

/// A line: what stands before an equals sign, from it on, and the comment at the end.
#[derive(Debug, Default)]
struct Line<'a> {
    lead: Vec<Token<'a>>,
    assign: Vec<Token<'a>>,
    comment: Option<&'a str>,
    indent: usize,
    lead_width: usize,
    comment_column: usize,
}

impl Line<'_> {
    fn text(&self) -> String {
        let mut out = " ".repeat(self.indent);
        let lead = join(&self.lead);
        out.push_str(&lead);
        if !self.assign.is_empty() {
            out.push_str(&" ".repeat((self.lead_width + 1).saturating_sub(width(&lead)).max(1)));
            out.push_str(&join(&self.assign));
        }
        if let Some(comment) = self.comment {
            let last = out.rsplit('\n').next().unwrap_or("");
            if !self.lead.is_empty() {
                out.push_str(&" ".repeat(self.comment_column.saturating_sub(width(last)).max(1)));
            }
            out.push_str(comment);
        }
        out
    }

    /// How many brackets stay open behind this line; negative if it closes more.
    fn balance(&self) -> isize {
        self.lead.iter().chain(&self.assign).map(Token::balance).sum()
    }
}

impl Token<'_> {
    fn balance(&self) -> isize {
        match self.kind {
            Kind::Open => 1,
            Kind::Close => -1,
            _ => 0,
        }
    }
}

fn width(text: &str) -> usize {
    text.graphemes(true).count()
}

/// Splits the text into lines of tokens. A heredoc and a comment over several lines belong to the line they begin in.
fn lines(text: &str) -> Vec<Line<'_>> {
    let mut out = Vec::new();
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut rest = text.trim_start_matches('\u{feff}');
    let mut spaced = false;
    while let Some(c) = rest.chars().next() {
        if c == '\n' {
            out.push(line(std::mem::take(&mut tokens)));
            rest = rest.get(1..).unwrap_or("");
            spaced = false;
            continue;
        }
        if c.is_whitespace() {
            rest = rest.get(c.len_utf8()..).unwrap_or("");
            spaced = true;
            continue;
        }
        let (kind, len) = token(rest, c);
        let (text, after) = rest.split_at_checked(len).unwrap_or((rest, ""));
        let text = if kind == Kind::Comment { text.trim_end() } else { text };
        tokens.push(Token { kind, text, spaced });
        rest = after;
        spaced = false;
    }
    if !tokens.is_empty() {
        out.push(line(tokens));
    }
    out
}

/// Kind and length of the token at the start of a text.
fn token(rest: &str, c: char) -> (Kind, usize) {
    let to_line_end = || rest.find('\n').unwrap_or(rest.len());
    match c {
        '#' => (Kind::Comment, to_line_end()),
        '/' if rest.starts_with("//") => (Kind::Comment, to_line_end()),
        '/' if rest.starts_with("/*") => (Kind::Literal, rest.find("*/").map_or(rest.len(), |at| at + 2)),
        '"' => (Kind::Literal, string_len(rest)),
        '<' if rest.starts_with("<<") => (Kind::Literal, heredoc_len(rest)),
        '(' | '[' | '{' => (Kind::Open, 1),
        ')' | ']' | '}' => (Kind::Close, 1),
        c if is_ident_start(c) => (Kind::Word, rest.find(|c| !is_ident_continue(c)).unwrap_or(rest.len())),
        c if c.is_ascii_digit() => (Kind::Literal, number_len(rest)),
        _ => {
            let long = ["...", "==", "!=", "<=", ">=", "&&", "||", "=>"];
            let len = long.iter().find(|o| rest.starts_with(**o)).map_or(c.len_utf8(), |o| o.len());
            (Kind::Operator, len)
        }
    }
}

fn number_len(rest: &str) -> usize {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut len = digits(rest);
    if let Some(fraction) = rest.get(len..).and_then(|r| r.strip_prefix('.'))
        && digits(fraction) > 0
    {
        len += 1 + digits(fraction);
    }
    if let Some(exponent) = rest.get(len..).and_then(|r| r.strip_prefix(['e', 'E'])) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits(unsigned) > 0 {
            len += 1 + (exponent.len() - unsigned.len()) + digits(unsigned);
        }
    }
    len
}

/// Length of a quoted string with everything in its interpolations. The text parsed, so it ends.
fn string_len(rest: &str) -> usize {
    let mut at = 1;
    // Brackets open in each interpolation around here; empty inside the outermost string itself.
    let mut open: Vec<usize> = Vec::new();
    let mut in_string = true;
    while let Some(c) = rest.get(at..).and_then(|r| r.chars().next()) {
        let here = rest.get(at..).unwrap_or("");
        if in_string {
            match c {
                '\\' => at += 1,
                '"' if open.is_empty() => return at + 1,
                '"' => in_string = false,
                '$' | '%' if here.starts_with("$${") || here.starts_with("%%{") => at += 2,
                '$' | '%' if here.starts_with("${") || here.starts_with("%{") => {
                    open.push(0);
                    in_string = false;
                    at += 1;
                }
                _ => {}
            }
            at += rest.get(at..).and_then(|r| r.chars().next()).map_or(1, char::len_utf8);
            continue;
        }
        match (c, open.last_mut()) {
            ('"', _) => in_string = true,
            ('{', Some(depth)) => *depth += 1,
            ('}', Some(0)) => {
                open.pop();
                in_string = true;
            }
            ('}', Some(depth)) => *depth -= 1,
            _ => {}
        }
        at += c.len_utf8();
    }
    rest.len()
}

/// Length of a heredoc, its closing marker included.
fn heredoc_len(rest: &str) -> usize {
    let head = rest.trim_start_matches('<').trim_start_matches('-');
    let marker = head.get(..head.find(|c| !is_ident_continue(c)).unwrap_or(head.len())).unwrap_or("");
    let mut at = rest.find('\n').map_or(rest.len(), |n| n + 1);
    while let Some(line) = rest.get(at..).filter(|l| !l.is_empty()).and_then(|l| l.split('\n').next()) {
        if line.trim() == marker {
            return at + line.trim_end().len();
        }
        at += line.len() + 1;
    }
    rest.len()
}

/// Takes the comment at the end off, and what an equals sign begins if it is complete in this line.
fn line(mut tokens: Vec<Token<'_>>) -> Line<'_> {
    let mut line = Line::default();
    if let Some(last) = tokens.last().filter(|t| t.kind == Kind::Comment) {
        line.comment = Some(last.text);
        tokens.pop();
    }
    let equals = tokens.iter().skip(1).position(|t| t.text == "=" && t.kind == Kind::Operator).map(|i| i + 1);
    if let Some(at) = equals
        && tokens.iter().skip(at).map(Token::balance).sum::<isize>() == 0
    {
        line.assign = tokens.split_off(at);
    }
    line.lead = tokens;
    line
}

/// Two blanks for each line that opened brackets which are still open.
fn indent(lines: &mut [Line<'_>]) {
    let mut open: Vec<isize> = Vec::new();
    for line in lines {
        let balance = line.balance();
        let mut closed = -balance;
        while closed > 0 {
            match open.last_mut() {
                Some(top) if *top > closed => {
                    *top -= closed;
                    closed = 0;
                }
                Some(top) => {
                    closed -= *top;
                    open.pop();
                }
                None => break,
            }
        }
        line.indent = 2 * open.len();
        if balance == 0 && line.lead.first().is_some_and(|t| t.kind == Kind::Close) {
            // `} else {` and the like stand where the bracket was opened.
            line.indent = line.indent.saturating_sub(2);
        }
        if balance > 0 {
            open.push(balance);
        }
    }
}

/// Calls `set` with the widest of each run of neighbouring lines for which `measure` gives a width.
fn align<'a>(lines: &mut [Line<'a>], measure: impl Fn(&Line<'a>) -> Option<usize>, set: impl Fn(&mut Line<'a>, usize)) {
    let widths: Vec<Option<usize>> = lines.iter().map(measure).collect();
    let mut start = 0;
    while start < widths.len() {
        let end = widths.iter().skip(start).position(Option::is_none).map_or(widths.len(), |n| start + n);
        let widest = widths.iter().take(end).skip(start).flatten().max().copied().unwrap_or(0);
        for line in lines.iter_mut().take(end).skip(start) {
            set(line, widest);
        }
        start = end + 1;
    }
}

fn align_assignments(lines: &mut [Line<'_>]) {
    align(
        lines,
        |line| (!line.assign.is_empty()).then(|| width(&join(&line.lead))),
        |line, widest| line.lead_width = widest,
    );
}

fn align_comments(lines: &mut [Line<'_>]) {
    align(
        lines,
        |line| {
            (line.comment.is_some() && !line.lead.is_empty()).then(|| {
                let body = Line { comment: None, ..copy(line) }.text();
                width(body.rsplit('\n').next().unwrap_or(""))
            })
        },
        |line, widest| line.comment_column = widest + 1,
    );
}

fn copy<'a>(line: &Line<'a>) -> Line<'a> {
    Line { lead: line.lead.clone(), assign: line.assign.clone(), ..*line }
}

/// Tokens with one blank where one belongs.
fn join(tokens: &[Token<'_>]) -> String {
    let mut out = String::new();
    for (i, token) in tokens.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|at| tokens.get(at));
        let earlier = i.checked_sub(2).and_then(|at| tokens.get(at));
        if before.is_some_and(|before| blank_between(earlier, before, token)) {
            out.push(' ');
        }
        out.push_str(token.text);
    }
    out
}

fn blank_between(earlier: Option<&Token<'_>>, before: &Token<'_>, after: &Token<'_>) -> bool {
    match (before.text, after.text) {
        (_, "," | "..." | ".") | (".", _) => false,
        ("{", "}") => false,
        ("(" | "[", _) | (_, ")" | "]") => false,
        ("{", _) | (_, "}") | (_, "{") => true,
        (_, "(") if before.kind == Kind::Word => false,
        // An index has no blank before it; a list after a keyword has.
        (_, "[") if matches!(before.kind, Kind::Word | Kind::Close | Kind::Literal) => after.spaced,
        ("!" | "-", _) if before.kind == Kind::Operator => !is_unary(earlier),
        _ => true,
    }
}

/// Whether a sign behind this token belongs to what follows.
fn is_unary(earlier: Option<&Token<'_>>) -> bool {
    match earlier {
        None => true,
        Some(token) => {
            matches!(token.kind, Kind::Operator | Kind::Open) && token.text != "." || matches!(token.text, "in" | "if")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::format;

    fn check(text: &str, wanted: &str) {
        let done = format("x.hcl", text).expect("a text that parses");
        assert_eq!(done, wanted);
        assert_eq!(format("x.hcl", &done).expect("its own output"), done, "a second pass changes nothing");
    }

    #[test]
    fn indents_and_aligns() {
        check("job \"x\" {\na=1\n  bb =   2\n}\n", "job \"x\" {\n  a  = 1\n  bb = 2\n}\n");
        check(
            "job   \"x\" {\ntype=\"batch\"\n  priority   = 50\n group \"g\" {\n task \"t\" {\n driver=\"raw_exec\"\n}\n}\n}\n",
            "job \"x\" {\n  type     = \"batch\"\n  priority = 50\n  group \"g\" {\n    task \"t\" {\n      driver = \
             \"raw_exec\"\n    }\n  }\n}\n",
        );
    }

    #[test]
    fn keeps_comments_strings_and_heredocs() {
        check(
            "a = 1 # one\nlong_name = [1,2 , -3]   // two\n\n# alone\nb = <<-EOT\n   kept  as is\n EOT\nc {x=\"${ f(\"}\") }\"}\n",
            "a         = 1          # one\nlong_name = [1, 2, -3] // two\n\n# alone\nb = <<-EOT\n   kept  as is\n EOT\nc { x = \
             \"${ f(\"}\") }\" }\n",
        );
    }

    #[test]
    fn knows_signs_indexes_and_calls() {
        check(
            "a = !x&&-y<f( 1,g[0] ... )\nb = {\nk=v\n}\nc = [for x in [1,2]:x if x>-1]\n",
            "a = !x && -y < f(1, g[0]...)\nb = {\n  k = v\n}\nc = [for x in [1, 2] : x if x > -1]\n",
        );
    }
}
