//! `${...}` in job text, filled in at run time from the node, the task's environment and so on.
//!
//! What the keys mean is the caller's: it hands in a [`Lookup`]. A reference the lookup does not
//! know stays in the text as it is, so that shell and template syntax passes through unharmed.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Where the value of a `${key}` comes from.
pub trait Lookup {
    /// The value of `key`, the text between `${` and `}` (`attr.kernel.name`, `NOMAD_TASK_DIR`,
    /// `env["HOME"]`); `None` if it is not known.
    fn get(&self, key: &str) -> Option<Cow<'_, str>>;
}

impl<F> Lookup for F
where
    F: Fn(&str) -> Option<String>,
{
    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        self(key).map(Cow::Owned)
    }
}

impl Lookup for BTreeMap<String, String> {
    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        BTreeMap::get(self, key).map(|v| Cow::Borrowed(v.as_str()))
    }
}

/// One lookup after the other: the first that knows the key answers.
pub struct Chain<'l>(pub &'l [&'l dyn Lookup]);

impl Lookup for Chain<'_> {
    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        self.0.iter().find_map(|lookup| lookup.get(key))
    }
}

/// Replaces every `${key}` which `lookup` knows. Values are not looked into again, so that a value
/// cannot pull in another one.
#[must_use]
pub fn interpolate<'t>(text: &'t str, lookup: &dyn Lookup) -> Cow<'t, str> {
    let mut out: Option<String> = None;
    let mut copied = 0;
    for reference in scan(text) {
        let Some(value) = lookup.get(reference.key) else {
            continue;
        };
        let buffer = out.get_or_insert_with(|| String::with_capacity(text.len()));
        buffer.push_str(text.get(copied..reference.start).unwrap_or_default());
        buffer.push_str(&value);
        copied = reference.end;
    }
    match out {
        None => Cow::Borrowed(text),
        Some(mut buffer) => {
            buffer.push_str(text.get(copied..).unwrap_or_default());
            Cow::Owned(buffer)
        }
    }
}

/// The keys of all `${key}` in `text`, in order, with repetitions.
pub fn references(text: &str) -> impl Iterator<Item = &str> {
    scan(text).map(|reference| reference.key)
}

/// The variable name in an `env["NAME"]` key.
#[must_use]
pub fn env_name(key: &str) -> Option<&str> {
    key.strip_prefix("env[\"")?.strip_suffix("\"]")
}

/// The key, if `text` is one `${key}` and nothing else.
#[must_use]
pub fn whole_reference(text: &str) -> Option<&str> {
    let reference = scan(text).next()?;
    (reference.start == 0 && reference.end == text.len()).then_some(reference.key)
}

struct Reference<'t> {
    /// Byte offset of the `$`.
    start: usize,
    /// Byte offset behind the `}`.
    end: usize,
    key: &'t str,
}

/// Finds the references. A key is not empty and holds no `$`, `{`, `}` and no line break, so that
/// of `${a ${b}` the inner reference is found.
fn scan(text: &str) -> impl Iterator<Item = Reference<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at + text.get(at..)?.find("${")?;
            let from = start + 2;
            let rest = text.get(from..)?;
            let len = rest.find(['$', '{', '}', '\n', '\r'])?;
            at = from + len;
            if len > 0 && rest.as_bytes().get(len) == Some(&b'}') {
                at += 1;
                return Some(Reference { start, end: at, key: rest.get(..len)? });
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> BTreeMap<String, String> {
        [
            ("node.class", "compute"),
            ("node.unique.id", "1234"),
            ("meta.rack", "r1"),
            ("meta.odd key", "odd"),
            ("attr.unique.network.ip-address", "10.0.0.1"),
            ("NOMAD_TASK_NAME", "first"),
            ("env[\"HOME\"]", "/root"),
            ("secret.n.k", "s3"),
            ("self", "${node.class}"),
            ("empty", ""),
        ]
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
    }

    #[test]
    fn known_is_replaced_and_unknown_stays() {
        let t = table();
        for (text, want) in [
            ("plain", "plain"),
            ("${NOMAD_TASK_NAME}-${node.class}-${meta.rack}", "first-compute-r1"),
            ("[${meta.nope}]", "[${meta.nope}]"),
            ("[${env[\"HOME\"]}]", "[/root]"),
            ("[${env[\"NOPE\"]}]", "[${env[\"NOPE\"]}]"),
            ("${secret.n.k}", "s3"),
            ("${meta.odd key}", "odd"),
            ("${attr.unique.network.ip-address}:80", "10.0.0.1:80"),
            ("${self}", "${node.class}"),
            ("a${empty}b", "ab"),
            ("${}", "${}"),
            ("${node.class", "${node.class"),
            ("$${node.class}", "$compute"),
            ("${x${node.class}}", "${xcompute}"),
            ("$node.class", "$node.class"),
            ("é${node.class}é", "écomputeé"),
            ("${VAR:-default}", "${VAR:-default}"),
        ] {
            assert_eq!(interpolate(text, &t), want, "{text}");
        }
        assert!(matches!(interpolate("x ${nope}", &t), Cow::Borrowed(_)));
    }

    #[test]
    fn references_are_listed_in_order() {
        let keys: Vec<_> = references("${a.b} $c ${d} ${env[\"X\"]} ${a.b} ${").collect();
        assert_eq!(keys, ["a.b", "d", "env[\"X\"]", "a.b"]);
        assert_eq!(env_name("env[\"X\"]"), Some("X"));
        assert_eq!(env_name("envX"), None);
        assert_eq!(whole_reference("${a}"), Some("a"));
        assert_eq!(whole_reference("${a}x"), None);
        assert_eq!(whole_reference("x"), None);
    }

    #[test]
    fn the_first_lookup_wins() {
        let (a, b) = (table(), |key: &str| Some(format!("<{key}>")));
        let both: [&dyn Lookup; 2] = [&a, &b];
        assert_eq!(interpolate("${node.class} ${x}", &Chain(&both)), "compute <x>");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            let _ = interpolate(&text, &table());
        }

        #[test]
        fn without_known_keys_the_text_is_kept(text in "[a${}é.\\[\\]\" \n]{0,24}") {
            prop_assert_eq!(interpolate(&text, &|_: &str| None::<String>), text.as_str());
        }

        #[test]
        fn replacing_by_itself_changes_nothing(text in "[a${}é.]{0,24}") {
            let same = |key: &str| Some(format!("${{{key}}}"));
            prop_assert_eq!(interpolate(&text, &same), text.as_str());
        }
    }
}
