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
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
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
    pub fn into(program: &str, out: Box<dyn Write + Send>, err: Box<dyn Write + Send>) -> Terminal {
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

/// Lines of cells separated by `|`, set in columns: cells padded to the widest, two spaces between. Empty cells read
/// `<none>`, as the peer's do.
pub fn columns(lines: &[String]) -> String {
    render(lines, "  ", "<none>")
}

/// `Key|Value` lines set as `Key  = Value`.
pub fn pairs(lines: &[String]) -> String {
    render(lines, " = ", "<none>")
}

fn render(lines: &[String], gap: &str, empty: &str) -> String {
    let rows: Vec<Vec<&str>> = lines
        .iter()
        .map(|line| line.split('|').map(|c| if c.trim().is_empty() { empty } else { c.trim() }).collect())
        .collect();
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
        line.push_str(cell);
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
    fn cells_stand_in_columns() {
        let lines = ["ID|Type|Status".to_string(), "web|service|running".to_string(), "b||dead".to_string()];
        assert_eq!(columns(&lines), "ID   Type     Status\nweb  service  running\nb    <none>   dead");
        let lines = ["ID|web".to_string(), "Status|running".to_string()];
        assert_eq!(pairs(&lines), "ID     = web\nStatus = running");
    }
}
