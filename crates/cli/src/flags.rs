//! Flags as people know them from the peer: one or two dashes, `-name value` or `-name=value`, truth values only with `=`,
//! and the first word that is no flag ends them.

use std::collections::BTreeMap;
use strsim::levenshtein;

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `-name`, `-name=true`, `-name=false`.
    Bool,
    /// One text; given again, the last counts.
    Text,
    /// May be given several times, each counts.
    Texts,
    /// A whole number.
    Number,
    /// A duration such as `1h30m`.
    Duration,
}

/// One flag of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    /// What stands for the value in the help, such as `<addr>`; empty for none.
    pub value: &'static str,
    pub help: &'static str,
}

impl Flag {
    /// A switch.
    pub const fn switch(name: &'static str, help: &'static str) -> Flag {
        Flag { name, kind: Kind::Bool, value: "", help }
    }
    /// A flag with one text.
    pub const fn text(name: &'static str, value: &'static str, help: &'static str) -> Flag {
        Flag { name, kind: Kind::Text, value, help }
    }
    /// A flag that may be given several times.
    pub const fn texts(name: &'static str, value: &'static str, help: &'static str) -> Flag {
        Flag { name, kind: Kind::Texts, value, help }
    }
    /// A flag with a whole number.
    pub const fn number(name: &'static str, help: &'static str) -> Flag {
        Flag { name, kind: Kind::Number, value: "<n>", help }
    }
    /// A flag with a duration.
    pub const fn duration(name: &'static str, help: &'static str) -> Flag {
        Flag { name, kind: Kind::Duration, value: "<duration>", help }
    }
}

/// The flags and words of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parsed {
    values: BTreeMap<String, Vec<String>>,
    /// The words after the flags.
    pub words: Vec<String>,
    /// Help was asked for.
    pub help: bool,
}

/// Why flags cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("flag provided but not defined: -{name}{}", nearest.as_ref().map(|n| format!(" (did you mean -{n}?)")).unwrap_or_default())]
    Unknown { name: String, nearest: Option<String> },
    #[error("flag needs an argument: -{0}")]
    NoValue(String),
    #[error("invalid value {value:?} for flag -{name}: {cause}")]
    BadValue { name: String, value: String, cause: String },
    #[error("bad flag syntax: {0}")]
    Syntax(String),
}

/// Reads the flags of a call; what follows the first word that is no flag is left as it is.
///
/// # Errors
/// An unknown flag, a missing or malformed value.
pub fn parse(flags: &[Flag], arguments: &[String]) -> Result<Parsed, FlagError> {
    let mut parsed = Parsed::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            parsed.words.extend(rest.cloned());
            break;
        }
        let Some(body) = argument.strip_prefix('-').filter(|b| !b.is_empty()) else {
            parsed.words.push(argument.clone());
            parsed.words.extend(rest.cloned());
            break;
        };
        let body = body.strip_prefix('-').unwrap_or(body);
        let (name, given) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (body, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(FlagError::Syntax(argument.clone()));
        }
        let Some(flag) = flags.iter().find(|f| f.name == name) else {
            if matches!(name, "h" | "help") {
                parsed.help = true;
                return Ok(parsed);
            }
            return Err(FlagError::Unknown { name: name.to_string(), nearest: nearest(flags, name) });
        };
        let value = match (flag.kind, given) {
            (Kind::Bool, None) => "true".to_string(),
            (_, Some(value)) => value,
            (_, None) => rest.next().cloned().ok_or_else(|| FlagError::NoValue(name.to_string()))?,
        };
        check(flag, &value)?;
        let values = parsed.values.entry(name.to_string()).or_default();
        if flag.kind != Kind::Texts {
            values.clear();
        }
        values.push(value);
    }
    Ok(parsed)
}

fn check(flag: &Flag, value: &str) -> Result<(), FlagError> {
    let bad = |cause: String| FlagError::BadValue { name: flag.name.to_string(), value: value.to_string(), cause };
    match flag.kind {
        Kind::Bool => truth(value).map(|_| ()).ok_or_else(|| bad("not true or false".into())),
        Kind::Number => value.parse::<i64>().map(|_| ()).map_err(|_| bad("not a whole number".into())),
        Kind::Duration => herdsman_expr::duration::parse(value).map(|_| ()).map_err(|e| bad(e.to_string())),
        Kind::Text | Kind::Texts => Ok(()),
    }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// The flag whose name is nearest to an unknown one, if any is near enough to be meant.
fn nearest(flags: &[Flag], name: &str) -> Option<String> {
    let limit = name.len() / 3 + 1;
    flags
        .iter()
        .map(|f| (levenshtein(f.name, name), f.name))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, n)| n.to_string())
}

impl Parsed {
    /// Whether a flag was given at all.
    pub fn given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// A switch; absent is false.
    pub fn on(&self, name: &str) -> bool {
        self.on_or(name, false)
    }

    /// A switch with a default.
    pub fn on_or(&self, name: &str, default: bool) -> bool {
        self.text(name).and_then(truth).unwrap_or(default)
    }

    /// The text of a flag.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).and_then(|v| v.last()).map(String::as_str)
    }

    /// The text of a flag, or the empty text.
    pub fn text_or_empty(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    /// Every text of a flag that may be given several times.
    pub fn texts(&self, name: &str) -> &[String] {
        self.values.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The number of a flag (checked when it was read).
    pub fn number(&self, name: &str) -> Option<i64> {
        self.text(name).and_then(|t| t.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        Flag::switch("detach", ""),
        Flag::text("namespace", "<ns>", ""),
        Flag::texts("var", "<k=v>", ""),
        Flag::number("n", ""),
    ];

    fn read(line: &str) -> Result<Parsed, FlagError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(FLAGS, &words)
    }

    #[test]
    fn flags_and_words_are_told_apart() {
        let parsed = read("-detach --namespace a -var x=1 -var=y=2 -n 3 file -detach=false").unwrap();
        assert!(parsed.on("detach"));
        assert_eq!(parsed.text("namespace"), Some("a"));
        assert_eq!(parsed.texts("var"), ["x=1", "y=2"]);
        assert_eq!(parsed.number("n"), Some(3));
        assert_eq!(parsed.words, ["file", "-detach=false"]);
        assert_eq!(read("-").unwrap().words, ["-"]);
        assert!(read("-h").unwrap().help);
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        assert_eq!(
            read("-detatch").unwrap_err().to_string(),
            "flag provided but not defined: -detatch (did you mean -detach?)"
        );
        assert_eq!(read("-bananas").unwrap_err().to_string(), "flag provided but not defined: -bananas");
        assert!(matches!(read("-namespace"), Err(FlagError::NoValue(_))));
        assert!(matches!(read("-n x"), Err(FlagError::BadValue { .. })));
        assert!(matches!(read("-detach=maybe"), Err(FlagError::BadValue { .. })));
        assert!(matches!(read("---x"), Err(FlagError::Syntax(_))));
    }

    proptest::proptest! {
        #[test]
        fn no_words_make_the_parser_panic(words in proptest::collection::vec("-{0,3}\\PC{0,8}", 0..6)) {
            let _ = parse(FLAGS, &words);
        }
    }
}
