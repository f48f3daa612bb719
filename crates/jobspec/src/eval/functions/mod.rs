//! The functions of the language: one table, from which calls, argument checks and documentation derive.

mod collection;
mod crypto;
mod encoding;
mod files;
mod format;
mod network;
mod number;
mod text;
mod time;
mod yaml;

use std::sync::Arc;

use super::value::{Type, Value};
use super::{Host, convert};
use crate::diag::Span;
use crate::hcl::Call;
use crate::number::Number;

/// A value given to a function, and where it stands in the file.
#[derive(Clone, Debug)]
pub struct Argument {
    /// The value.
    pub value: Value,
    /// Where.
    pub span: Span,
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// One argument is unsuitable.
    Argument {
        /// Which, from 0.
        index: usize,
        /// Why.
        why: String,
    },
    /// The call failed.
    Call(String),
}

/// What a function makes of its arguments.
pub type Answer = Result<Value, CallFault>;

/// What an argument may be; it is converted to that first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Number.
    Num,
    /// Anything but null.
    Any,
    /// Anything.
    Nullable,
    /// A list of anything.
    List,
    /// A list of texts.
    Texts,
    /// A set of anything.
    Set,
}

/// A function.
pub struct Function {
    /// Its name.
    pub name: &'static str,
    parameters: &'static [(&'static str, Kind)],
    rest: Option<(&'static str, Kind)>,
    run: fn(&Args<'_>) -> Answer,
    /// What it does, in a few words.
    pub doc: &'static str,
}

impl Function {
    /// The name of the parameter that takes argument `index`.
    pub fn parameter(&self, index: usize) -> &'static str {
        self.slot(index).map_or("", |p| p.0)
    }

    fn slot(&self, index: usize) -> Option<(&'static str, Kind)> {
        self.parameters.get(index).copied().or(self.rest)
    }

    /// Names of the parameters, the repeatable one last with `...`.
    pub fn signature(&self) -> String {
        let mut names: Vec<String> = self.parameters.iter().map(|p| p.0.to_owned()).collect();
        names.extend(self.rest.map(|p| format!("{}...", p.0)));
        format!("{}({})", self.name, names.join(", "))
    }
}

/// Converted arguments.
pub struct Args<'a> {
    values: Vec<Value>,
    host: &'a dyn Host,
}

impl Args<'_> {
    fn value(&self, i: usize) -> &Value {
        self.values.get(i).unwrap_or(&Value::Null)
    }

    fn text(&self, i: usize) -> &str {
        match self.value(i) {
            Value::String(text) => text,
            _ => "",
        }
    }

    fn number(&self, i: usize) -> Number {
        match self.value(i) {
            Value::Number(number) => number.clone(),
            _ => Number::from_i64(0),
        }
    }

    /// A whole number that fits.
    fn int(&self, i: usize) -> Result<i64, CallFault> {
        let number = self.number(i);
        number.to_i64().ok_or_else(|| {
            CallFault::Call(format!("value must be a whole number, between {} and {}", i64::MIN, i64::MAX))
        })
    }

    fn items(&self, i: usize) -> Arc<Vec<Value>> {
        self.value(i).items().cloned().unwrap_or_default()
    }

    fn all(&self) -> &[Value] {
        &self.values
    }

    fn from(&self, i: usize) -> &[Value] {
        self.values.get(i..).unwrap_or(&[])
    }
}

fn bad<T>(index: usize, why: impl Into<String>) -> Result<T, CallFault> {
    Err(CallFault::Argument { index, why: why.into() })
}

fn failed<T>(why: impl Into<String>) -> Result<T, CallFault> {
    Err(CallFault::Call(why.into()))
}

/// Fails for a text beyond the limit, before it is built.
fn check_len(bytes: usize) -> Result<(), CallFault> {
    if bytes > super::MAX_STRING_BYTES {
        return failed(format!("the result would have more than {} bytes", super::MAX_STRING_BYTES));
    }
    Ok(())
}

/// The function of a name.
pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.binary_search_by(|f| f.name.cmp(name)).ok().and_then(|i| FUNCTIONS.get(i))
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|f| f.name)
}

/// All functions, by name.
pub fn all() -> &'static [Function] {
    FUNCTIONS
}

/// What is wrong with the number of arguments, if anything.
pub(super) fn arity_fault(function: &Function, args: &[Argument], call: &Call) -> Option<(Span, &'static str, String)> {
    let wanted = function.parameters.len();
    let at_least = if function.rest.is_some() { "at least " } else { "" };
    if let Some((missing, _)) = function.parameters.get(args.len()) {
        let detail = format!(
            "Function \"{}\" expects {at_least}{wanted} argument(s). Missing value for \"{missing}\".",
            function.name
        );
        return Some((call.close, "Not enough function arguments", detail));
    }
    if function.rest.is_none() && args.len() > wanted {
        let span = call.args.get(wanted).map_or(call.close, |arg| arg.focus());
        let detail = format!("Function \"{}\" expects only {wanted} argument(s).", function.name);
        return Some((span, "Too many function arguments", detail));
    }
    None
}

/// Steps a call takes beyond one.
pub(super) fn cost(function: &Function, args: &[Argument]) -> usize {
    let mut size = 0;
    for argument in args {
        size += super::weigh(&argument.value).unwrap_or(super::MAX_VALUE_WEIGHT);
        if size / 8 > super::MAX_STEPS {
            return super::MAX_STEPS;
        }
    }
    let extra = match function.name {
        "bcrypt" => crypto::bcrypt_steps(args),
        "rsadecrypt" => 50_000,
        "regex_replace" => size * 4,
        "csvdecode" | "jsondecode" | "yamldecode" | "yamlencode" => size * 2,
        _ => 0,
    };
    size / 8 + extra
}

/// Converts the arguments and runs the function.
pub(super) fn call(function: &Function, args: &[Argument], host: &dyn Host) -> Answer {
    let mut values = Vec::with_capacity(args.len());
    for (index, argument) in args.iter().enumerate() {
        let kind = function.slot(index).map_or(Kind::Any, |p| p.1);
        values.push(take(index, &argument.value, kind)?);
    }
    (function.run)(&Args { values, host })
}

fn take(index: usize, value: &Value, kind: Kind) -> Answer {
    if value.is_null() && kind != Kind::Nullable {
        return bad(index, "argument must not be null");
    }
    let wanted = match kind {
        Kind::Any | Kind::Nullable => return Ok(value.clone()),
        Kind::Text => Type::String,
        Kind::Num => Type::Number,
        Kind::List => Type::List(Box::new(Type::Any)),
        Kind::Texts => Type::List(Box::new(Type::String)),
        Kind::Set => Type::Set(Box::new(Type::Any)),
    };
    convert::convert(value, &wanted).or_else(|why| bad(index, why))
}

/// `try`, `can` and `convert` are evaluated before their arguments are; here they only have names.
fn lazy(_: &Args<'_>) -> Answer {
    failed("this function needs its arguments as expressions")
}

type Row = Function;

const fn row(
    name: &'static str,
    parameters: &'static [(&'static str, Kind)],
    rest: Option<(&'static str, Kind)>,
    run: fn(&Args<'_>) -> Answer,
    doc: &'static str,
) -> Row {
    Function { name, parameters, rest, run, doc }
}

use Kind::{Any, List, Nullable, Num, Set, Text, Texts};

/// Sorted by name.
static FUNCTIONS: &[Function] = &[
    row("abs", &[("num", Num)], None, number::abs, "the number without its sign"),
    row("abspath", &[("path", Text)], None, files::abspath, "the absolute form of a path"),
    row("base64decode", &[("str", Text)], None, encoding::base64decode, "the text that base64 stands for"),
    row("base64encode", &[("str", Text)], None, encoding::base64encode, "base64 of a text"),
    row("basename", &[("path", Text)], None, files::basename, "the last element of a path"),
    row(
        "bcrypt",
        &[("str", Text)],
        Some(("cost", Num)),
        crypto::bcrypt,
        "bcrypt hash of a password, with a random salt",
    ),
    row("can", &[("expression", Nullable)], None, lazy, "whether an expression evaluates"),
    row("ceil", &[("num", Num)], None, number::ceil, "the next whole number up"),
    row("chomp", &[("str", Text)], None, text::chomp, "the text without line ends at its end"),
    row("chunklist", &[("list", List), ("size", Num)], None, collection::chunklist, "the list in pieces of a size"),
    row(
        "cidrhost",
        &[("prefix", Text), ("hostnum", Num)],
        None,
        network::cidrhost,
        "the address of a host in a network",
    ),
    row("cidrnetmask", &[("prefix", Text)], None, network::cidrnetmask, "the netmask of a prefix"),
    row(
        "cidrsubnet",
        &[("prefix", Text), ("newbits", Num), ("netnum", Num)],
        None,
        network::cidrsubnet,
        "a network inside a network",
    ),
    row(
        "cidrsubnets",
        &[("prefix", Text)],
        Some(("newbits", Num)),
        network::cidrsubnets,
        "consecutive networks inside a network",
    ),
    row("coalesce", &[], Some(("vals", Nullable)), collection::coalesce, "the first value that is not null"),
    row("coalescelist", &[], Some(("vals", Any)), collection::coalescelist, "the first list that is not empty"),
    row("compact", &[("list", Texts)], None, collection::compact, "the list without empty texts"),
    row("concat", &[], Some(("seqs", Any)), collection::concat, "lists one after the other"),
    row("contains", &[("list", Any), ("value", Nullable)], None, collection::contains, "whether a list holds a value"),
    row("convert", &[("value", Nullable), ("type", Nullable)], None, lazy, "the value in a type"),
    row("csvdecode", &[("str", Text)], None, encoding::csvdecode, "the rows of comma separated values, as objects"),
    row("dirname", &[("path", Text)], None, files::dirname, "a path without its last element"),
    row("distinct", &[("list", List)], None, collection::distinct, "the list without repetitions"),
    row("element", &[("list", Any), ("index", Num)], None, collection::element, "an element, counting round the end"),
    row("file", &[("path", Text)], None, files::file, "the content of a file"),
    row("filebase64", &[("path", Text)], None, files::filebase64, "the content of a file in base64"),
    row("fileexists", &[("path", Text)], None, files::fileexists, "whether a file is there"),
    row("fileset", &[("path", Text), ("pattern", Text)], None, files::fileset, "the files that match a pattern"),
    row("flatten", &[("list", Any)], None, collection::flatten, "nested lists as one"),
    row("floor", &[("num", Num)], None, number::floor, "the next whole number down"),
    row("format", &[("format", Text)], Some(("args", Nullable)), format::format, "a text made by a format"),
    row("formatdate", &[("format", Text), ("time", Text)], None, time::formatdate, "a time in a format"),
    row("formatlist", &[("format", Text)], Some(("args", Nullable)), format::formatlist, "a format for each element"),
    row(
        "indent",
        &[("spaces", Num), ("str", Text)],
        None,
        text::indent,
        "the text with all lines but the first indented",
    ),
    row("index", &[("collection", Any), ("key", Any)], None, collection::index, "the element at a key"),
    row("join", &[("separator", Text)], Some(("lists", Texts)), text::join, "the elements as one text"),
    row("jsondecode", &[("str", Text)], None, encoding::jsondecode, "the value that JSON stands for"),
    row("jsonencode", &[("val", Nullable)], None, encoding::jsonencode, "a value as JSON"),
    row("keys", &[("inputMap", Any)], None, collection::keys, "the names in a map"),
    row("length", &[("collection", Any)], None, collection::length, "the number of elements"),
    row("log", &[("num", Num), ("base", Num)], None, number::log, "the logarithm"),
    row(
        "lookup",
        &[("inputMap", Any), ("key", Text), ("default", Nullable)],
        None,
        collection::lookup,
        "the member of a map, or a default",
    ),
    row("lower", &[("str", Text)], None, text::lower, "the text in lower case"),
    row("max", &[], Some(("numbers", Num)), number::max, "the largest number"),
    row("md5", &[("str", Text)], None, crypto::md5, "MD5 in hexadecimal"),
    row("merge", &[], Some(("maps", Nullable)), collection::merge, "maps in one, later ones winning"),
    row("min", &[], Some(("numbers", Num)), number::min, "the smallest number"),
    row("parseint", &[("number", Any), ("base", Num)], None, number::parseint, "the number a text spells in a base"),
    row("pathexpand", &[("path", Text)], None, files::pathexpand, "a path with ~ expanded"),
    row("pow", &[("num", Num), ("power", Num)], None, number::pow, "the power"),
    row("range", &[], Some(("params", Num)), number::range, "numbers from, to, by"),
    row(
        "regex_replace",
        &[("str", Text), ("pattern", Text), ("replace", Text)],
        None,
        text::regex_replace,
        "the text with what matches replaced",
    ),
    row(
        "replace",
        &[("str", Text), ("substr", Text), ("replace", Text)],
        None,
        text::replace,
        "the text with a part replaced",
    ),
    row("reverse", &[("str", Text)], None, text::reverse, "the text backwards"),
    row("rsadecrypt", &[("ciphertext", Text), ("privatekey", Text)], None, crypto::rsadecrypt, "RSA decryption"),
    row(
        "setintersection",
        &[("first_set", Set)],
        Some(("other_sets", Set)),
        collection::setintersection,
        "the elements in all sets",
    ),
    row("setproduct", &[], Some(("sets", Any)), collection::setproduct, "all combinations"),
    row("setunion", &[("first_set", Set)], Some(("other_sets", Set)), collection::setunion, "the elements of all sets"),
    row("sha1", &[("str", Text)], None, crypto::sha1, "SHA-1 in hexadecimal"),
    row("sha256", &[("str", Text)], None, crypto::sha256, "SHA-256 in hexadecimal"),
    row("sha512", &[("str", Text)], None, crypto::sha512, "SHA-512 in hexadecimal"),
    row("signum", &[("num", Num)], None, number::signum, "-1, 0 or 1 by the sign"),
    row(
        "slice",
        &[("list", Any), ("start_index", Num), ("end_index", Num)],
        None,
        collection::slice,
        "a part of a list",
    ),
    row("sort", &[("list", Texts)], None, collection::sort, "the texts in order"),
    row("split", &[("separator", Text), ("str", Text)], None, text::split, "the text in pieces"),
    row("strlen", &[("str", Text)], None, text::strlen, "the number of characters"),
    row("strrev", &[("str", Text)], None, text::reverse, "the text backwards"),
    row("substr", &[("str", Text), ("offset", Num), ("length", Num)], None, text::substr, "a part of a text"),
    row("timeadd", &[("timestamp", Text), ("duration", Text)], None, time::timeadd, "a time later"),
    row("title", &[("str", Text)], None, text::title, "the text with words in capitals"),
    row("trim", &[("str", Text), ("cutset", Text)], None, text::trim, "the text without characters at its ends"),
    row("trimprefix", &[("str", Text), ("prefix", Text)], None, text::trimprefix, "the text without a beginning"),
    row("trimspace", &[("str", Text)], None, text::trimspace, "the text without blanks at its ends"),
    row("trimsuffix", &[("str", Text), ("suffix", Text)], None, text::trimsuffix, "the text without an ending"),
    row("try", &[], Some(("expressions", Nullable)), lazy, "the first expression that evaluates"),
    row("upper", &[("str", Text)], None, text::upper, "the text in upper case"),
    row("urlencode", &[("str", Text)], None, encoding::urlencode, "the text for a query"),
    row("uuidv4", &[], None, crypto::uuidv4, "a random UUID"),
    row("uuidv5", &[("namespace", Text), ("name", Text)], None, crypto::uuidv5, "a UUID made from a name"),
    row("values", &[("mapping", Any)], None, collection::values, "the values in a map"),
    row("yamldecode", &[("src", Text)], None, yaml::yamldecode, "the value that YAML stands for"),
    row("yamlencode", &[("value", Nullable)], None, yaml::yamlencode, "a value as YAML"),
    row("zipmap", &[("keys", Texts), ("values", Any)], None, collection::zipmap, "a map from names and values"),
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_sorted() {
        let names: Vec<_> = super::names().collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(names, sorted);
    }
}
