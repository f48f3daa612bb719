//! Where commands print: standard output and error, or memory in tests; colours only on a terminal.

use std::io::{IsTerminal, Write};

/// A colour of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Red,
    Green,
    Yellow,
    Cyan,
    Grey,
    Bold,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Red => "31",
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Cyan => "36",
            Colour::Grey => "90",
            Colour::Bold => "1",
        }
    }
}

/// Where commands print.
pub struct Terminal {
    program: String,
    out: Box<dyn Write + Send + Sync>,
    err: Box<dyn Write + Send + Sync>,
    colours: bool,
    interactive: bool,
}

impl Terminal {
    /// The terminal of this process, for a program called by this name.
    pub fn of_process(program: &str) -> Terminal {
        let interactive = std::io::stdout().is_terminal();
        Terminal {
            program: program.to_string(),
            out: Box::new(std::io::stdout()),
            err: Box::new(std::io::stderr()),
            colours: interactive,
            interactive,
        }
    }

    /// Prints into these, without colours.
    pub fn into(program: &str, out: Box<dyn Write + Send + Sync>, err: Box<dyn Write + Send + Sync>) -> Terminal {
        Terminal { program: program.to_string(), out, err, colours: false, interactive: false }
    }

    /// The name the program was called by.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether somebody looks at a screen, so that lines may be drawn again.
    pub fn interactive(&self) -> bool {
        self.interactive
    }

    /// Turns colours on or off.
    pub fn set_colours(&mut self, colours: bool) {
        self.colours = colours;
    }

    /// Prints a line. Somebody who closed our output has seen enough: what cannot be written is let go.
    pub fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.out, "{}", text.as_ref());
    }

    /// Prints text as it is.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
        let _ = self.out.flush();
    }

    /// Prints lines over what was last drawn here, where somebody looks at a screen; else below it.
    pub fn draw(&mut self, region: &mut Region, text: &str) {
        if !self.interactive {
            self.line(text);
            return;
        }
        let (height, width) = screen_size();
        let mut lines: Vec<String> = text.lines().map(|l| clip(l, width)).collect();
        // What scrolled off cannot be drawn over again.
        lines.truncate(height.saturating_sub(1).max(1));
        let mut drawing = String::new();
        if region.lines > 0 {
            drawing = format!("\u{1b}[{}A\u{1b}[J", region.lines);
        }
        drawing.push_str(&lines.join("\n"));
        drawing.push('\n');
        region.lines = lines.len();
        self.raw(drawing.as_bytes());
    }

    /// Prints a line on standard error.
    pub fn error(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.err, "{}", text.as_ref());
    }

    /// Prints bytes on standard error as they are.
    pub fn raw_error(&mut self, bytes: &[u8]) {
        let _ = self.err.write_all(bytes);
        let _ = self.err.flush();
    }

    /// The text in a colour, where there are colours.
    pub fn paint(&self, colour: Colour, text: &str) -> String {
        if self.colours { format!("\u{1b}[{}m{text}\u{1b}[0m", colour.code()) } else { text.to_string() }
    }
}

/// A part of the screen that is drawn again as things change.
#[derive(Debug, Default)]
pub struct Region {
    lines: usize,
}

/// Lines and columns of the screen.
pub fn screen_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (usize::from(size.ws_row), usize::from(size.ws_col)),
        _ => (24, 80),
    }
}

/// The line without what does not fit the screen, so that it takes one line there.
fn clip(line: &str, width: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    let mut escaped = false;
    for c in line.chars() {
        match (escaped, c) {
            (false, '\u{1b}') => escaped = true,
            (true, 'm') => escaped = false,
            (true, _) => {}
            (false, _) => {
                count += 1;
                if count > width {
                    continue;
                }
            }
        }
        out.push(c);
    }
    out
}

/// Lines of cells separated by `|`, set in columns: cells padded to the widest, two spaces between. Empty cells read
/// `<none>`, as the peer's do.
pub fn columns(lines: &[String]) -> String {
    render(lines, "  ")
}

/// `Key|Value` lines set as `Key  = Value`.
pub fn pairs(lines: &[String]) -> String {
    render(lines, " = ")
}

/// Stands for `|` within a cell.
const BAR: char = '\u{1f}';

/// A text as one cell of a line: what separates cells is kept as text, line ends become blanks.
pub fn cell(text: &str) -> String {
    text.trim()
        .chars()
        .map(|c| {
            if c == '|' {
                BAR
            } else if c == '\n' {
                ' '
            } else {
                c
            }
        })
        .collect()
}

fn render(lines: &[String], gap: &str) -> String {
    let rows: Vec<Vec<&str>> =
        lines.iter().map(|line| line.split('|').map(|c| crate::view::or_none(c.trim())).collect()).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        for (position, cell) in row.iter().enumerate() {
            // A last cell is not padded, so it widens nothing.
            let width = if position + 1 == row.len() { 0 } else { width(cell) };
            match widths.get_mut(position) {
                Some(known) => *known = (*known).max(width),
                None => widths.push(width),
            }
        }
    }
    let text: Vec<String> = rows.iter().map(|row| set_row(row, &widths, gap)).collect();
    text.join("\n")
}

fn set_row(row: &[&str], widths: &[usize], gap: &str) -> String {
    let mut line = String::new();
    for (position, cell) in row.iter().enumerate() {
        line.extend(cell.chars().map(|c| if c == BAR { '|' } else { c }));
        if position + 1 < row.len() {
            let wanted = widths.get(position).copied().unwrap_or(0);
            line.extend(std::iter::repeat_n(' ', wanted.saturating_sub(width(cell))));
            line.push_str(gap);
        }
    }
    line.trim_end().to_string()
}

/// Characters a cell takes on the screen; colours take none.
fn width(cell: &str) -> usize {
    let mut count = 0;
    let mut escaped = false;
    for c in cell.chars() {
        match (escaped, c) {
            (false, '\u{1b}') => escaped = true,
            (false, _) => count += 1,
            (true, 'm') => escaped = false,
            (true, _) => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_clipped_and_colours_kept() {
        assert_eq!(clip("abcdef", 4), "abcd");
        assert_eq!(clip("\u{1b}[31mabcdef\u{1b}[0m", 2), "\u{1b}[31mab\u{1b}[0m");
    }

    #[test]
    fn cells_stand_in_columns() {
        let lines = ["ID|Type|Status".to_string(), "web|service|running".to_string(), "b||dead".to_string()];
        assert_eq!(columns(&lines), "ID   Type     Status\nweb  service  running\nb    <none>   dead");
        let lines = ["ID|web".to_string(), "Status|running".to_string()];
        assert_eq!(pairs(&lines), "ID     = web\nStatus = running");
    }
}
