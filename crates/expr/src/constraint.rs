//! Constraint operators: how an attribute of a node is held against the value a job asks for.
//!
//! A scheduler resolves both sides ([`Target`]), compiles the right one once ([`Constraint`]) and
//! asks [`Constraint::matches`] per node. Where the right side differs from node to node,
//! [`check`] does both steps with a [`Cache`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::interpolate::Lookup;
use crate::pattern::{Pattern, PatternError};
use crate::version::{Scheme, Version, VersionConstraint, VersionError};

/// Most compiled right sides a [`Cache`] keeps; when it is full it starts anew.
pub const MAX_CACHED: usize = 1024;
/// Most of them that are patterns, which take the most memory.
pub const MAX_CACHED_PATTERNS: usize = 64;

/// What a constraint does with its two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// `=`, `==`, `is`
    Equal,
    /// `!=`, `not`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
    /// `version`
    Version,
    /// `semver`
    Semver,
    /// `regexp`
    Regexp,
    /// `set_contains`, `set_contains_all`
    SetContainsAll,
    /// `set_contains_any`
    SetContainsAny,
    /// `is_set`
    IsSet,
    /// `is_not_set`
    IsNotSet,
    /// `distinct_hosts`: about other allocations, not about a node's attributes
    DistinctHosts,
    /// `distinct_property`: likewise
    DistinctProperty,
}

impl Operator {
    /// The operator of this name; `None` if there is none.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "=" | "==" | "is" => Self::Equal,
            "!=" | "not" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterEqual,
            "version" => Self::Version,
            "semver" => Self::Semver,
            "regexp" => Self::Regexp,
            "set_contains" | "set_contains_all" => Self::SetContainsAll,
            "set_contains_any" => Self::SetContainsAny,
            "is_set" => Self::IsSet,
            "is_not_set" => Self::IsNotSet,
            "distinct_hosts" => Self::DistinctHosts,
            "distinct_property" => Self::DistinctProperty,
            _ => return None,
        })
    }
}

/// Why a constraint cannot be used. The texts are those shown when a job is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// No operator at all.
    #[error("Missing constraint operand")]
    MissingOperator,
    /// No operator of that name.
    #[error("Unknown constraint type {0:?}")]
    UnknownOperator(String),
    /// A comparison without a right side.
    #[error("Operator {0:?} requires an RTarget")]
    MissingRight(String),
    /// A set operator without a right side.
    #[error("Set contains constraint requires an RTarget")]
    MissingSet,
    /// No left side.
    #[error("no attribute provided but is required by operator")]
    MissingLeft,
    /// A `${...}` which stands for no attribute of a node.
    #[error("unsupported attribute {0:?}")]
    UnsupportedTarget(String),
    /// `regexp` with a bad pattern.
    #[error("Regular expression failed to compile: {0}")]
    Pattern(#[from] PatternError),
    /// `version` with a bad list.
    #[error("Version constraint is invalid: {0}")]
    Version(VersionError),
    /// `semver` with a bad list.
    #[error("Semver constraint is invalid: {0}")]
    Semver(VersionError),
    /// `distinct_property` with a count that is no number.
    #[error("Failed to convert RTarget {text:?} to uint64: strconv.ParseUint: parsing {text:?}: {cause}")]
    Count {
        /// The text in the place of the count.
        text: String,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// `distinct_property` with count 0.
    #[error("Distinct Property must have an allowed count of 1 or greater: 0 < 1")]
    ZeroCount,
}

/// A side of a constraint: a literal, or a `${...}` which a node fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'t> {
    /// The text itself.
    Literal(&'t str),
    /// `${key}`; the key is one of a node's (`node.class`, `attr.*`, `meta.*`).
    Node(&'t str),
    /// `${device.*}`, known only while devices are looked at.
    Device(&'t str),
    /// Any other text which starts with `${`; it is never found.
    Unknown(&'t str),
}

impl<'t> Target<'t> {
    /// Reads a side. Only a text that starts with `${` is a reference, so `x-${meta.a}` is literal.
    #[must_use]
    pub fn parse(text: &'t str) -> Self {
        let Some(key) = text.strip_prefix("${") else {
            return Self::Literal(text);
        };
        let Some(key) = key.strip_suffix('}') else {
            return Self::Unknown(text);
        };
        match key {
            "node.unique.id" | "node.datacenter" | "node.unique.name" | "node.class" | "node.pool" => Self::Node(key),
            _ if key.starts_with("attr.") || key.starts_with("meta.") => Self::Node(key),
            _ if key.starts_with("device.") => Self::Device(key),
            _ => Self::Unknown(text),
        }
    }

    /// The value on a node, whose attributes `node` knows under the keys of [`Target::Node`].
    #[must_use]
    pub fn resolve<'a>(self, node: &'a dyn Lookup) -> Option<Cow<'a, str>>
    where
        't: 'a,
    {
        match self {
            Self::Literal(text) => Some(Cow::Borrowed(text)),
            Self::Node(key) => node.get(key),
            Self::Device(_) | Self::Unknown(_) => None,
        }
    }
}

/// Whether a side refers to something that differs between nodes of one class, so that a result
/// must not be remembered for the class.
#[must_use]
pub fn is_unique(side: &str) -> bool {
    ["${node.unique.", "${attr.unique.", "${meta.unique.", "${unique."].iter().any(|prefix| side.starts_with(prefix))
}

/// An operator with its right side, read once for many left sides.
#[derive(Debug, Clone)]
pub struct Constraint {
    rule: Rule,
}

#[derive(Debug, Clone)]
enum Rule {
    Equal(String),
    NotEqual(String),
    Ordered(Operator, Ordered),
    Version(Scheme, VersionConstraint),
    Regexp(Pattern),
    ContainsAll(Vec<String>),
    ContainsAny(Vec<String>),
    IsSet,
    IsNotSet,
    /// Decided elsewhere; a node's attributes never speak against it.
    Elsewhere,
}

impl Constraint {
    /// Reads operator and right side. An empty right side is taken as a value here; that some
    /// operators must have one is [`validate`]'s to say.
    ///
    /// # Errors
    /// An unknown operator, or a right side the operator cannot read.
    pub fn compile(operator: &str, right: &str) -> Result<Self, ConstraintError> {
        let Some(parsed) = Operator::parse(operator) else {
            return Err(match operator {
                "" => ConstraintError::MissingOperator,
                _ => ConstraintError::UnknownOperator(operator.to_owned()),
            });
        };
        let rule = match parsed {
            Operator::Equal => Rule::Equal(right.to_owned()),
            Operator::NotEqual => Rule::NotEqual(right.to_owned()),
            Operator::Less | Operator::LessEqual | Operator::Greater | Operator::GreaterEqual => {
                Rule::Ordered(parsed, Ordered::new(right))
            }
            Operator::Version => Rule::Version(
                Scheme::Loose,
                VersionConstraint::parse(right, Scheme::Loose).map_err(ConstraintError::Version)?,
            ),
            Operator::Semver => Rule::Version(
                Scheme::Strict,
                VersionConstraint::parse(right, Scheme::Strict).map_err(ConstraintError::Semver)?,
            ),
            Operator::Regexp => Rule::Regexp(Pattern::new(right)?),
            Operator::SetContainsAll => Rule::ContainsAll(set(right).map(str::to_owned).collect()),
            Operator::SetContainsAny => Rule::ContainsAny(set(right).map(str::to_owned).collect()),
            Operator::IsSet => Rule::IsSet,
            Operator::IsNotSet => Rule::IsNotSet,
            Operator::DistinctHosts | Operator::DistinctProperty => Rule::Elsewhere,
        };
        Ok(Self { rule })
    }

    /// Whether a left side fulfils the constraint; `None` if the node has no such attribute.
    #[must_use]
    pub fn matches(&self, left: Option<&str>) -> bool {
        match (&self.rule, left) {
            (Rule::Elsewhere, _) => true,
            (Rule::IsSet, left) => left.is_some(),
            (Rule::IsNotSet, left) => left.is_none(),
            // An attribute which is missing is as good as an empty one here.
            (Rule::NotEqual(right), left) => left.unwrap_or_default() != right,
            (_, None) => false,
            (Rule::Equal(right), Some(left)) => left == right,
            (Rule::Ordered(operator, right), Some(left)) => right.holds(*operator, left),
            (Rule::Version(scheme, constraint), Some(left)) => {
                Version::parse(left, *scheme).is_ok_and(|version| constraint.matches(&version))
            }
            (Rule::Regexp(pattern), Some(left)) => pattern.is_match(left),
            (Rule::ContainsAll(wanted), Some(left)) => wanted.iter().all(|w| set(left).any(|have| have == w)),
            (Rule::ContainsAny(wanted), Some(left)) => wanted.iter().any(|w| set(left).any(|have| have == w)),
        }
    }

    /// The same for a right side which was not found either: only a missing or empty left side is
    /// then not "not equal" to it, and presence is asked of the left side alone.
    #[must_use]
    pub fn matches_without_right(operator: Operator, left: Option<&str>) -> bool {
        match operator {
            Operator::NotEqual => !left.unwrap_or_default().is_empty(),
            Operator::IsSet => left.is_some(),
            Operator::IsNotSet => left.is_none(),
            Operator::DistinctHosts | Operator::DistinctProperty => true,
            _ => false,
        }
    }
}

/// The members of a comma list, trimmed.
fn set(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// The right side of `<` and its kin, in every form it can be compared in.
#[derive(Debug, Clone)]
struct Ordered {
    text: String,
    integer: Option<i64>,
    float: Option<f64>,
}

impl Ordered {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), integer: text.parse().ok(), float: float(text) }
    }

    /// As integers if both are, else as floats if both are, else as text.
    fn holds(&self, operator: Operator, left: &str) -> bool {
        fn compare<T: PartialOrd>(operator: Operator, left: T, right: T) -> bool {
            match operator {
                Operator::Less => left < right,
                Operator::LessEqual => left <= right,
                Operator::Greater => left > right,
                Operator::GreaterEqual => left >= right,
                _ => false,
            }
        }
        if let (Ok(left), Some(right)) = (left.parse::<i64>(), self.integer) {
            return compare(operator, left, right);
        }
        if let (Some(left), Some(right)) = (float(left), self.float) {
            return compare(operator, left, right);
        }
        compare(operator, left, self.text.as_str())
    }
}

/// A float by Go's rules: a number too large for it is no float, though `inf` is one.
fn float(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let spelled = text.bytes().any(|b| b.eq_ignore_ascii_case(&b'i'));
    (!value.is_infinite() || spelled).then_some(value)
}

/// Compiled right sides, for [`check`].
#[derive(Default)]
pub struct Cache {
    /// By operator and right side; `None` where it does not compile.
    compiled: BTreeMap<(String, String), Option<Constraint>>,
    /// How many of them are patterns.
    patterns: usize,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} entries)", self.compiled.len())
    }
}

impl Cache {
    fn get(&mut self, operator: &str, right: &str) -> Option<&Constraint> {
        if self.compiled.len() >= MAX_CACHED || self.patterns >= MAX_CACHED_PATTERNS {
            self.compiled.clear();
            self.patterns = 0;
        }
        let patterns = &mut self.patterns;
        self.compiled
            .entry((operator.to_owned(), right.to_owned()))
            .or_insert_with(|| {
                let compiled = Constraint::compile(operator, right).ok()?;
                *patterns += usize::from(matches!(compiled.rule, Rule::Regexp(_)));
                Some(compiled)
            })
            .as_ref()
    }
}

/// Whether the two resolved sides fulfil the operator; `None` is a side that was not found. An
/// unknown operator and a right side that does not compile are never fulfilled.
#[must_use]
pub fn check(operator: &str, left: Option<&str>, right: Option<&str>, cache: &mut Cache) -> bool {
    let Some(parsed) = Operator::parse(operator) else {
        return false;
    };
    match right {
        Some(right) => cache.get(operator, right).is_some_and(|constraint| constraint.matches(left)),
        None => Constraint::matches_without_right(parsed, left),
    }
}

/// Everything that is wrong with a constraint as written in a job, in the order it is reported.
#[must_use]
pub fn validate(left: &str, operator: &str, right: &str) -> Vec<ConstraintError> {
    let mut errors = Vec::new();
    let Some(parsed) = Operator::parse(operator) else {
        // Reports the missing or unknown operator.
        return Constraint::compile(operator, right).err().into_iter().collect();
    };
    match parsed {
        Operator::DistinctHosts | Operator::IsSet | Operator::IsNotSet => {}
        Operator::Regexp | Operator::Version | Operator::Semver => {
            // A reference is only known on a node.
            if matches!(Target::parse(right), Target::Literal(_)) {
                errors.extend(Constraint::compile(operator, right).err());
            }
        }
        Operator::DistinctProperty => errors.extend(distinct_count(right).err()),
        Operator::SetContainsAll | Operator::SetContainsAny => {
            if right.is_empty() {
                errors.push(ConstraintError::MissingSet);
            }
        }
        _ => {
            if right.is_empty() {
                errors.push(ConstraintError::MissingRight(operator.to_owned()));
            }
        }
    }
    if parsed != Operator::DistinctHosts {
        if left.is_empty() {
            errors.push(ConstraintError::MissingLeft);
        } else if matches!(Target::parse(left), Target::Unknown(_)) {
            errors.push(ConstraintError::UnsupportedTarget(left.to_owned()));
        }
    }
    errors
}

/// How many allocations may share a value under `distinct_property`: the right side, 1 if empty.
///
/// # Errors
/// A right side that is no whole number above 0.
pub fn distinct_count(right: &str) -> Result<u64, ConstraintError> {
    if right.is_empty() {
        return Ok(1);
    }
    let digits = right.bytes().all(|b| b.is_ascii_digit());
    match right.parse::<u64>() {
        Ok(0) if digits => Err(ConstraintError::ZeroCount),
        Ok(count) if digits => Ok(count),
        _ => Err(ConstraintError::Count {
            text: right.to_owned(),
            cause: if digits { "value out of range" } else { "invalid syntax" },
        }),
    }
}

/// Whether a `distinct_hosts` constraint is on: everything but a false value is.
#[must_use]
pub fn distinct_hosts_enabled(right: &str) -> bool {
    !matches!(right, "0" | "f" | "F" | "false" | "FALSE" | "False")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets() {
        assert_eq!(Target::parse("a"), Target::Literal("a"));
        assert_eq!(Target::parse("x-${meta.a}"), Target::Literal("x-${meta.a}"));
        assert_eq!(Target::parse("${node.class}"), Target::Node("node.class"));
        assert_eq!(Target::parse("${attr.a.b}"), Target::Node("attr.a.b"));
        assert_eq!(Target::parse("${device.model}"), Target::Device("device.model"));
        assert_eq!(Target::parse("${node.region}"), Target::Unknown("${node.region}"));
        assert_eq!(Target::parse("${meta.a"), Target::Unknown("${meta.a"));
        assert!(is_unique("${attr.unique.hostname}"));
        assert!(is_unique("${node.unique.id}"));
        assert!(!is_unique("${attr.kernel.name}"));
        assert!(!is_unique("node.unique.id"));
    }

    #[test]
    fn refusals() {
        let texts = |l, o, r| -> Vec<String> { validate(l, o, r).iter().map(ToString::to_string).collect() };
        assert_eq!(texts("a", "~=", "b"), ["Unknown constraint type \"~=\""]);
        assert_eq!(
            texts("${meta.a}", "distinct_property", "zero"),
            ["Failed to convert RTarget \"zero\" to uint64: strconv.ParseUint: parsing \"zero\": invalid syntax"]
        );
        assert_eq!(texts("${weird.target}", "=", "x"), ["unsupported attribute \"${weird.target}\""]);
        assert_eq!(texts("", "distinct_hosts", "true"), [""; 0]);
        assert_eq!(texts("${meta.a}", "version", "${meta.b}"), [""; 0]);
    }

    #[test]
    fn nomad_16907_distinct_hosts_false_is_off() {
        assert!(!distinct_hosts_enabled("false"));
        assert!(distinct_hosts_enabled("true"));
        assert!(distinct_hosts_enabled(""));
        assert!(distinct_hosts_enabled("no idea"));
    }

    #[test]
    fn the_cache_does_not_grow_without_bound() {
        let mut cache = Cache::default();
        for i in 0..(3 * MAX_CACHED) {
            let text = i.to_string();
            assert!(check("=", Some(&text), Some(&text), &mut cache));
        }
        assert!(cache.compiled.len() <= MAX_CACHED);
        for i in 0..(3 * MAX_CACHED_PATTERNS) {
            let text = i.to_string();
            assert!(check("regexp", Some(&text), Some(&text), &mut cache));
        }
        assert!(cache.compiled.len() <= MAX_CACHED_PATTERNS);
    }

    const OPERATORS: [&str; 17] = [
        "=",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "version",
        "semver",
        "regexp",
        "set_contains",
        "set_contains_all",
        "set_contains_any",
        "is_set",
        "is_not_set",
        "distinct_hosts",
        "distinct_property",
        "nope",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn arbitrary_sides_never_panic(
            operator in proptest::sample::select(&OPERATORS[..]),
            left in proptest::option::of(any::<String>()),
            right in proptest::option::of(any::<String>()),
        ) {
            let mut cache = Cache::default();
            let _ = check(operator, left.as_deref(), right.as_deref(), &mut cache);
            let _ = validate(&left.unwrap_or_default(), operator, &right.unwrap_or_default());
        }

        #[test]
        fn equal_and_not_equal_are_opposites(left in "[ab]{0,2}", right in "[ab]{0,2}") {
            let mut cache = Cache::default();
            let equal = check("=", Some(&left), Some(&right), &mut cache);
            prop_assert_eq!(equal, !check("!=", Some(&left), Some(&right), &mut cache));
            prop_assert_eq!(equal, left == right);
        }

        #[test]
        fn integers_are_compared_as_integers(left in any::<i64>(), right in any::<i64>()) {
            let mut cache = Cache::default();
            let (l, r) = (left.to_string(), right.to_string());
            prop_assert_eq!(check("<", Some(&l), Some(&r), &mut cache), left < right);
            prop_assert_eq!(check(">=", Some(&l), Some(&r), &mut cache), left >= right);
        }
    }
}
