//! The functions that templates of tasks have: texts, numbers, lists, JSON, YAML and TOML, sums, the environment, files of
//! the task and services.
//!
//! What lies outside comes through [`Source`]. Functions whose data nobody here can reach fail with an error that names
//! them. Rules: `compat/lifecycle.md` section 10 and the recorded renderings.

mod clock;
mod hash;
mod json;
mod lists;
mod math;
#[cfg(test)]
mod tests;
mod text;
mod toml;

mod yaml;

use crate::builtin::CallError;
use crate::show::type_name;
use crate::{Functions, MAX_OUTPUT_BYTES};
use serde_json::Value;

/// What templates of tasks may look at.
pub trait Source {
    /// A variable of the task's environment.
    fn env(&self, name: &str) -> Option<String>;
    /// The text of a file the task may read.
    ///
    /// # Errors
    /// It lies outside of the task's directories, or cannot be read.
    fn file(&self, path: &str) -> Result<String, String>;
    /// The services of the cluster: objects with `Name` and `Tags`.
    ///
    /// # Errors
    /// They are not known here.
    fn services(&self) -> Result<Vec<Value>, String>;
    /// The instances of a service: objects with `ID`, `Name`, `Address`, `Port`, `Tags`, `JobID`, `AllocID`, `Datacenter`,
    /// `Node`.
    ///
    /// # Errors
    /// They are not known here.
    fn service(&self, name: &str) -> Result<Vec<Value>, String>;
    /// Nanoseconds since 1970.
    fn now(&self) -> i64;
}

/// The functions, over a source.
pub struct TaskFunctions<'s> {
    source: &'s dyn Source,
}

impl<'s> TaskFunctions<'s> {
    /// The functions, over a source.
    pub fn new(source: &'s dyn Source) -> Self {
        TaskFunctions { source }
    }
}

/// A function and how many arguments it takes: at least, at most.
type Row = (&'static str, usize, usize);

const MANY: usize = usize::MAX;

const ROWS: &[Row] = &[
    ("add", 2, 2),
    ("base64Decode", 1, 1),
    ("base64Encode", 1, 1),
    ("base64URLDecode", 1, 1),
    ("base64URLEncode", 1, 1),
    ("byTag", 1, 1),
    ("contains", 2, 2),
    ("containsAll", 2, 2),
    ("containsAny", 2, 2),
    ("containsNone", 2, 2),
    ("containsNotAll", 2, 2),
    ("divide", 2, 2),
    ("env", 1, 1),
    ("envOrDefault", 2, 2),
    ("explodeMap", 1, 1),
    ("file", 1, 1),
    ("hmacSHA256Hex", 2, 2),
    ("in", 2, 2),
    ("indent", 2, 2),
    ("join", 2, 2),
    ("loop", 1, 2),
    ("maximum", 2, 2),
    ("md5sum", 1, 1),
    ("mergeMap", 2, 2),
    ("mergeMapWithOverride", 2, 2),
    ("minimum", 2, 2),
    ("modulo", 2, 2),
    ("multiply", 2, 2),
    ("mustEnv", 1, 1),
    ("nomadService", 1, 3),
    ("nomadServices", 0, 0),
    ("parseBool", 1, 1),
    ("parseFloat", 1, 1),
    ("parseInt", 1, 1),
    ("parseJSON", 1, 1),
    ("parseUint", 1, 1),
    ("parseYAML", 1, 1),
    ("regexMatch", 2, 2),
    ("regexReplaceAll", 3, 3),
    ("replaceAll", 3, 3),
    ("sha256Hex", 1, 1),
    ("split", 2, 2),
    ("splitToMap", 3, 3),
    ("subtract", 2, 2),
    ("timestamp", 0, 1),
    ("toJSON", 1, 1),
    ("toJSONPretty", 1, 1),
    ("toLower", 1, 1),
    ("toTOML", 1, 1),
    ("toTitle", 1, 1),
    ("toUnescapedJSON", 1, 1),
    ("toUnescapedJSONPretty", 1, 1),
    ("toUpper", 1, 1),
    ("toYAML", 1, 1),
    ("trim", 2, 2),
    ("trimPrefix", 2, 2),
    ("trimSpace", 1, 1),
    ("trimSuffix", 2, 2),
    ("sprig_b64dec", 1, 1),
    ("sprig_b64enc", 1, 1),
    ("sprig_default", 1, 2),
    ("sprig_dict", 0, MANY),
    ("sprig_first", 1, 1),
    ("sprig_join", 2, 2),
    ("sprig_last", 1, 1),
    ("sprig_list", 0, MANY),
    ("sprig_lower", 1, 1),
    ("sprig_quote", 0, MANY),
    ("sprig_replace", 3, 3),
    ("sprig_sha256sum", 1, 1),
    ("sprig_squote", 0, MANY),
    ("sprig_ternary", 3, 3),
    ("sprig_trim", 1, 1),
    ("sprig_trunc", 2, 2),
    ("sprig_upper", 1, 1),
];

const CONSUL: &str = "it needs Consul, which is not reached; use nomadService, env or a file";
const VAULT: &str = "it needs Vault, which is not reached; pass the value another way";
const VARIABLES: &str = "variables are not read by nodes; pass the value by env or meta";
const HERE: &str = "it is not offered here; leave it out";
const DISABLED: &str = "function is disabled";

/// Functions that are known and fail, and why.
const REFUSED: &[(&str, &str)] = &[
    ("byKey", CONSUL),
    ("byMeta", CONSUL),
    ("byPort", CONSUL),
    ("caLeaf", CONSUL),
    ("caRoots", CONSUL),
    ("connect", CONSUL),
    ("datacenters", CONSUL),
    ("executeTemplate", DISABLED),
    ("explode", CONSUL),
    ("exportedServices", CONSUL),
    ("key", CONSUL),
    ("keyExists", CONSUL),
    ("keyExistsGet", CONSUL),
    ("keyOrDefault", CONSUL),
    ("ls", CONSUL),
    ("node", CONSUL),
    ("nodes", CONSUL),
    ("nomadVar", VARIABLES),
    ("nomadVarExists", VARIABLES),
    ("nomadVarList", VARIABLES),
    ("nomadVarListSafe", VARIABLES),
    ("partitions", CONSUL),
    ("peerings", CONSUL),
    ("pkiCert", VAULT),
    ("plugin", DISABLED),
    ("safeLs", CONSUL),
    ("safeTree", CONSUL),
    ("scratch", HERE),
    ("secret", VAULT),
    ("secrets", VAULT),
    ("service", CONSUL),
    ("services", CONSUL),
    ("sockaddr", HERE),
    ("spew_dump", HERE),
    ("spew_printf", HERE),
    ("spew_sdump", HERE),
    ("spew_sprintf", HERE),
    ("tree", CONSUL),
    ("writeToFile", DISABLED),
];

impl Functions for TaskFunctions<'_> {
    fn call(&self, name: &str, arguments: &[Value]) -> Option<Result<Value, String>> {
        Some(self.invoke(name, arguments)?.map_err(|error| match error {
            CallError::Usage(why) | CallError::Failed(why) => why,
        }))
    }

    fn invoke(&self, name: &str, arguments: &[Value]) -> Option<Result<Value, CallError>> {
        if let Some((_, why)) = REFUSED.iter().find(|row| row.0 == name) {
            if name == "byKey" && arguments.is_empty() {
                return Some(Err(count(name, "1", 0)));
            }
            let why = if *why == DISABLED { DISABLED.to_string() } else { format!("{name}: {why}") };
            return Some(Err(CallError::Failed(why)));
        }
        let (_, least, most) = ROWS.iter().find(|row| row.0 == name)?;
        let given = arguments.len();
        if given < *least || given > *most {
            let want = if least == most { least.to_string() } else { format!("at least {least}") };
            return Some(Err(count(name, &want, given)));
        }
        Some(self.dispatch(name, arguments))
    }

    fn has(&self, name: &str) -> bool {
        ROWS.iter().any(|row| row.0 == name) || REFUSED.iter().any(|row| row.0 == name)
    }
}

impl TaskFunctions<'_> {
    fn dispatch(&self, name: &str, a: &[Value]) -> Result<Value, CallError> {
        if let Some(result) = self.outside(name, a) {
            return result;
        }
        for family in [text::call, math::call, lists::call, hash::call, json::call, yaml::call, toml::call] {
            if let Some(result) = family(name, a) {
                return bounded(result?);
            }
        }
        Err(CallError::Usage(format!("{name:?} is not a defined function")))
    }

    /// Functions that look outside.
    fn outside(&self, name: &str, a: &[Value]) -> Option<Result<Value, CallError>> {
        Some(match (name, a) {
            ("env", [key]) => text_of(key).map(|key| Value::from(self.source.env(key).unwrap_or_default())),
            ("envOrDefault", [key, other]) => (|| {
                let found = self.source.env(text_of(key)?).filter(|value| !value.is_empty());
                Ok(Value::from(found.unwrap_or(text_of(other)?.to_string())))
            })(),
            ("mustEnv", [key]) => text_of(key).and_then(|key| {
                let found = self.source.env(key).filter(|value| !value.is_empty());
                found.map(Value::from).ok_or_else(|| failure(format!("required environment variable {key} is empty")))
            }),
            ("file", [path]) => text_of(path).and_then(|path| self.source.file(path).map(Value::from).map_err(failure)),
            ("timestamp", []) => clock::timestamp(self.source.now(), clock::RFC3339),
            ("timestamp", [layout]) => text_of(layout).and_then(|layout| clock::timestamp(self.source.now(), layout)),
            ("nomadServices", []) => self.source.services().map(Value::Array).map_err(failure),
            ("nomadService", [service]) => text_of(service).and_then(|service| self.instances(service)),
            ("nomadService", [number, key, service]) => (|| {
                let number = usize::try_from(whole(number)?).unwrap_or(0);
                let Value::Array(all) = self.instances(text_of(service)?)? else { return Ok(Value::Null) };
                Ok(Value::Array(lists::chosen(all, number, text_of(key)?)))
            })(),
            ("nomadService", _) => Err(failure("nomadService: give the service, or a number, a key and the service")),
            _ => return None,
        })
    }

    fn instances(&self, service: &str) -> Result<Value, CallError> {
        self.source.service(service).map(Value::Array).map_err(failure)
    }
}

fn count(name: &str, want: &str, got: usize) -> CallError {
    CallError::Usage(format!("wrong number of args for {name}: want {want} got {got}"))
}

fn failure(why: impl Into<String>) -> CallError {
    CallError::Failed(why.into())
}

/// A value that is not too large.
fn bounded(value: Value) -> Result<Value, CallError> {
    match &value {
        Value::String(text) if text.len() > MAX_OUTPUT_BYTES => {
            Err(failure(format!("more than {MAX_OUTPUT_BYTES} bytes")))
        }
        _ => Ok(value),
    }
}

fn text_of(value: &Value) -> Result<&str, CallError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) => {
            Err(CallError::Usage(format!("expected string; found {}", crate::show::nested(value))))
        }
        other => Err(CallError::Usage(format!("wrong type for value; expected string; got {}", type_name(other)))),
    }
}

fn whole(value: &Value) -> Result<i64, CallError> {
    let number = value.as_i64().or_else(|| {
        let float = value.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15)?;
        // Whole and small: nothing is lost.
        Some(float as i64)
    });
    number.ok_or_else(|| CallError::Usage(format!("expected integer; found {}", crate::show::nested(value))))
}

fn list_of(value: &Value) -> Result<&[Value], CallError> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(&[]),
        other => Err(CallError::Usage(format!("wrong type for value; expected a list; got {}", type_name(other)))),
    }
}
