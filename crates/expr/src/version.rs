//! Versions and version constraints, of the two kinds job files know.
//!
//! [`Scheme::Loose`] is the `version` operator (any number of segments, the pre-release may follow
//! without a dash, `~>` exists, and a pre-release only matches constraints which name one).
//! [`Scheme::Strict`] is the `semver` operator (pre-releases are simply ordered, no `~>`).

use std::cmp::Ordering;

/// Longest version or constraint text taken, in bytes.
pub const MAX_VERSION_BYTES: usize = 1024;
/// Most comma-separated parts of a constraint.
pub const MAX_TERMS: usize = 64;

/// Which of the two rule sets applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Operator `version`.
    Loose,
    /// Operator `semver`.
    Strict,
}

/// Why a text is no version or no version constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Not of the form of a version.
    #[error("malformed version: {0}")]
    Version(String),
    /// A term that is not `[operator] version`, under [`Scheme::Loose`].
    #[error("malformed constraint: {0}")]
    Constraint(String),
    /// The same under [`Scheme::Strict`].
    #[error("Malformed constraint: {0}")]
    StrictConstraint(String),
    /// A segment which 63 bits do not hold.
    #[error("error parsing version: strconv.ParseInt: parsing \"{0}\": value out of range")]
    Segment(String),
    /// More than [`MAX_VERSION_BYTES`] or [`MAX_TERMS`].
    #[error("version text is too long: at most {MAX_VERSION_BYTES} bytes and {MAX_TERMS} terms are taken")]
    TooLong,
}

/// A parsed version.
///
/// The order is total: numeric segments (missing ones are 0), then the pre-release by the rules of
/// semver. Build metadata does not count. (The peer puts `alpha` above `alpha.beta`, which makes a
/// circle with `alpha.1`; semver's rule is taken instead.)
#[derive(Debug, Clone)]
pub struct Version {
    /// At least three; what the text lacks is 0.
    segments: Vec<u64>,
    /// How many segments the text had.
    given: usize,
    prerelease: String,
}

impl Version {
    /// Parses a version like `v1.2.3-beta.1+build`.
    ///
    /// # Errors
    /// Text of another form, a segment over 63 bits, or too long a text.
    pub fn parse(text: &str, scheme: Scheme) -> Result<Self, VersionError> {
        if text.len() > MAX_VERSION_BYTES {
            return Err(VersionError::TooLong);
        }
        let malformed = || VersionError::Version(text.to_owned());
        let body = text.strip_prefix('v').unwrap_or(text);
        let (body, metadata) = match body.split_once('+') {
            Some((body, metadata)) => (body, Some(metadata)),
            None => (body, None),
        };
        if metadata.is_some_and(|m| !valid_identifiers(m)) {
            return Err(malformed());
        }
        let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
        let (numbers, rest) = body.split_at(end);
        let prerelease = split_prerelease(rest, scheme).ok_or_else(malformed)?;
        let mut segments = Vec::with_capacity(3);
        for part in numbers.split('.') {
            if part.is_empty() {
                return Err(malformed());
            }
            let value = part
                .parse::<u64>()
                .ok()
                .filter(|v| i64::try_from(*v).is_ok())
                .ok_or_else(|| VersionError::Segment(part.to_owned()))?;
            segments.push(value);
        }
        let given = segments.len();
        if segments.len() < 3 {
            segments.resize(3, 0);
        }
        Ok(Self { segments, given, prerelease: prerelease.to_owned() })
    }

    /// The pre-release part; empty for a release.
    #[must_use]
    pub fn prerelease(&self) -> &str {
        &self.prerelease
    }

    fn is_prerelease(&self) -> bool {
        !self.prerelease.is_empty()
    }

    fn segment(&self, index: usize) -> u64 {
        self.segments.get(index).copied().unwrap_or(0)
    }

    fn cmp_segments(&self, other: &Self) -> Ordering {
        let len = self.segments.len().max(other.segments.len());
        (0..len).map(|i| self.segment(i).cmp(&other.segment(i))).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_segments(other).then_with(|| match (self.is_prerelease(), other.is_prerelease()) {
            (false, false) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (true, true) => cmp_prerelease(&self.prerelease, &other.prerelease),
        })
    }
}

/// Non-empty parts of `[0-9A-Za-z~-]` with dots between.
fn valid_identifiers(text: &str) -> bool {
    text.split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'~'))
}

/// What follows the numbers: empty, `-pre`, or under the loose scheme also `pre`.
fn split_prerelease(rest: &str, scheme: Scheme) -> Option<&str> {
    if rest.is_empty() {
        return Some(rest);
    }
    if let Some(dashed) = rest.strip_prefix('-')
        && valid_identifiers(dashed)
    {
        return Some(dashed);
    }
    let bare = rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-' || c == '~');
    (scheme == Scheme::Loose && bare && valid_identifiers(rest)).then_some(rest)
}

/// Identifier by identifier: numbers below words, numbers by value, words by bytes, and what has
/// fewer identifiers first.
fn cmp_prerelease(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(l), Some(r)) => match (number(l), number(r)) {
                // Without leading zeros the longer number is the larger one, at any length.
                (Some(l), Some(r)) => l.len().cmp(&r.len()).then_with(|| l.cmp(r)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => l.cmp(r),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The digits without leading zeros, if the identifier is a number.
fn number(identifier: &str) -> Option<&str> {
    identifier.bytes().all(|b| b.is_ascii_digit()).then(|| identifier.trim_start_matches('0'))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterEqual,
    LessEqual,
    Pessimistic,
}

/// A comma-separated list of conditions which all must hold: `>= 1.2, < 2`.
#[derive(Debug, Clone)]
pub struct VersionConstraint {
    scheme: Scheme,
    terms: Vec<(Relation, Version)>,
}

impl VersionConstraint {
    /// Parses the list.
    ///
    /// # Errors
    /// An empty or malformed term, `~>` under the strict scheme, or too long a text.
    pub fn parse(text: &str, scheme: Scheme) -> Result<Self, VersionError> {
        if text.len() > MAX_VERSION_BYTES || text.split(',').count() > MAX_TERMS {
            return Err(VersionError::TooLong);
        }
        let terms = text.split(',').map(|term| parse_term(term, scheme)).collect::<Result<_, _>>()?;
        Ok(Self { scheme, terms })
    }

    /// Whether `version` fulfils every term.
    #[must_use]
    pub fn matches(&self, version: &Version) -> bool {
        self.terms.iter().all(|(relation, bound)| self.term_matches(*relation, version, bound))
    }

    fn term_matches(&self, relation: Relation, version: &Version, bound: &Version) -> bool {
        let order = version.cmp(bound);
        let comparable = self.scheme == Scheme::Strict || prerelease_allowed(version, bound);
        match relation {
            Relation::Equal => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::Greater => comparable && order.is_gt(),
            Relation::Less => comparable && order.is_lt(),
            Relation::GreaterEqual => comparable && order.is_ge(),
            Relation::LessEqual => comparable && order.is_le(),
            Relation::Pessimistic => comparable && order.is_ge() && pessimistic(version, bound),
        }
    }
}

/// A pre-release is only held against a bound which is a pre-release of the same version, so that
/// `>= 1.2` does not let `2.0.0-beta` in.
fn prerelease_allowed(version: &Version, bound: &Version) -> bool {
    !version.is_prerelease() || (bound.is_prerelease() && version.cmp_segments(bound).is_eq())
}

/// `~> 1.2.3`: all given segments but the last are equal. The caller has checked `version >= bound`.
fn pessimistic(version: &Version, bound: &Version) -> bool {
    if bound.is_prerelease() && !version.is_prerelease() {
        return false;
    }
    if bound.segments.len() > version.segments.len() {
        return false;
    }
    let fixed = bound.given.saturating_sub(1);
    let last = bound.segments.len().saturating_sub(1);
    (0..fixed).all(|i| version.segment(i) == bound.segment(i)) && version.segment(last) >= bound.segment(last)
}

fn parse_term(term: &str, scheme: Scheme) -> Result<(Relation, Version), VersionError> {
    let malformed = || match scheme {
        Scheme::Loose => VersionError::Constraint(term.to_owned()),
        Scheme::Strict => VersionError::StrictConstraint(term.to_owned()),
    };
    let text = term.trim_matches(is_space);
    // Longer operators first, so that `>=` is not read as `>`.
    let operators = [
        (">=", Relation::GreaterEqual),
        ("<=", Relation::LessEqual),
        ("!=", Relation::NotEqual),
        ("~>", Relation::Pessimistic),
        ("=", Relation::Equal),
        (">", Relation::Greater),
        ("<", Relation::Less),
    ];
    let (relation, version) = operators
        .iter()
        .find_map(|(name, relation)| Some((*relation, text.strip_prefix(name)?)))
        .unwrap_or((Relation::Equal, text));
    if relation == Relation::Pessimistic && scheme == Scheme::Strict {
        return Err(malformed());
    }
    match Version::parse(version.trim_start_matches(is_space), scheme) {
        Ok(version) => Ok((relation, version)),
        Err(VersionError::Version(_)) => Err(malformed()),
        Err(other) => Err(other),
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_the_reference_table() {
        let table = include_str!("../tests/data/versions.tsv");
        let mut rows = 0;
        for line in table.lines() {
            let cells: Vec<&str> = line.split('\t').collect();
            let got = match Version::parse(cells[0], Scheme::Loose) {
                Err(_) => "badver".to_owned(),
                Ok(version) => match VersionConstraint::parse(cells[1], Scheme::Loose) {
                    Err(error) => format!("badcon {error}"),
                    Ok(constraint) => constraint.matches(&version).to_string(),
                },
            };
            assert_eq!(got, cells[2], "{:?} {:?}", cells[0], cells[1]);
            rows += 1;
        }
        assert!(rows > 800, "table is cut: {rows} rows");
    }

    #[test]
    fn prereleases_are_ordered_like_semver() {
        let ordered = [
            "1.0.0-1",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.0.1",
            "1.1",
        ];
        for pair in ordered.windows(2) {
            let [low, high] = [0, 1].map(|i| Version::parse(pair[i], Scheme::Strict).unwrap());
            assert!(low < high, "{pair:?}");
        }
    }

    #[test]
    fn limits_refuse() {
        let long = "1".repeat(MAX_VERSION_BYTES + 1);
        assert_eq!(Version::parse(&long, Scheme::Loose).unwrap_err(), VersionError::TooLong);
        let many = "1,".repeat(MAX_TERMS + 1);
        assert_eq!(VersionConstraint::parse(&many, Scheme::Loose).unwrap_err(), VersionError::TooLong);
    }

    const ANY_VERSION: &str = "v?[0-9]{1,2}(\\.[0-3]){0,4}(-[ab0-2~-]{1,3}(\\.[ab0-2]{1,2}){0,2})?(\\+b)?";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn arbitrary_text_never_panics(a in any::<String>(), b in any::<String>()) {
            for scheme in [Scheme::Loose, Scheme::Strict] {
                let _ = Version::parse(&a, scheme);
                let _ = VersionConstraint::parse(&b, scheme);
            }
        }

        #[test]
        fn near_text_never_panics(
            a in "[v0-9a.+~-]{0,12}",
            b in "([ <>=!~]{0,3}[v0-9a.+~-]{0,8},?){0,4}",
        ) {
            for scheme in [Scheme::Loose, Scheme::Strict] {
                if let (Ok(version), Ok(constraint)) =
                    (Version::parse(&a, scheme), VersionConstraint::parse(&b, scheme))
                {
                    let _ = constraint.matches(&version);
                }
            }
        }

        #[test]
        fn the_order_is_total(a in ANY_VERSION, b in ANY_VERSION, c in ANY_VERSION) {
            let [a, b, c] = [a, b, c].map(|t| Version::parse(&t, Scheme::Loose).unwrap());
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a.cmp(&a), Ordering::Equal);
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
            if a == b {
                prop_assert_eq!(a.cmp(&c), b.cmp(&c));
            }
        }

        #[test]
        fn a_release_fulfils_exactly_one_of_less_equal_greater(a in "[0-9](\\.[0-9]){0,3}", b in ANY_VERSION) {
            for scheme in [Scheme::Loose, Scheme::Strict] {
                let version = Version::parse(&a, scheme).unwrap();
                let hits = ["<", "=", ">"]
                    .iter()
                    .filter(|op| {
                        VersionConstraint::parse(&format!("{op} {b}"), scheme)
                            .unwrap()
                            .matches(&version)
                    })
                    .count();
                prop_assert_eq!(hits, 1);
            }
        }
    }
}
