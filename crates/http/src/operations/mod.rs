//! Operations: everything that is not a plain read of the tables.

pub mod absent;
pub mod agent;
pub mod client;
pub mod deployments;
pub mod events;
pub mod exec;
pub mod jobs;
pub mod keyring;
pub mod launch;
pub mod metrics;
pub mod names;
pub mod nodes;
pub mod operator;
pub mod pages;
pub mod search;

use crate::error::HttpError;
use crate::pipeline::Call;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A JSON body whose keys may be spelled in any case, as the peer reads them. Source: wire-notes section 7.
///
/// # Errors
/// There is no body, or it is not the expected JSON.
pub fn body<T: DeserializeOwned>(call: &Call, keys: &[&str]) -> Result<T, HttpError> {
    let value: Value = call.request.json()?;
    from_value(value, keys)
}

/// As [`body`], but nothing at all is taken for an empty object.
///
/// # Errors
/// The body is not the expected JSON.
pub fn optional_body<T: DeserializeOwned>(call: &Call, keys: &[&str]) -> Result<T, HttpError> {
    if call.request.body.is_empty() {
        return from_value(Value::Object(Map::new()), keys);
    }
    body(call, keys)
}

fn from_value<T: DeserializeOwned>(mut value: Value, keys: &[&str]) -> Result<T, HttpError> {
    respell(&mut value, keys);
    typed(value, "")
}

/// The value as the wanted type; `outer` is the field of the body that holds it, or empty for the body itself.
///
/// # Errors
/// A field of a wrong type, or one that is missing: named by its path, with what was given and what is wanted.
pub fn typed<T: DeserializeOwned>(value: Value, outer: &str) -> Result<T, HttpError> {
    serde_path_to_error::deserialize(value).map_err(|e| {
        let inner = e.path().to_string();
        let steps = [outer, if inner == "." { "" } else { &inner }];
        let path: Vec<&str> = steps.into_iter().filter(|s| !s.is_empty()).collect();
        let place = if path.is_empty() { String::new() } else { format!("{}: ", path.join(".")) };
        HttpError::bad_request(format!("json: {place}{}", e.inner()))
    })
}

/// Gives the keys of an object the spelling of `keys`; nulls count as absent.
pub fn respell(value: &mut Value, keys: &[&str]) {
    let Value::Object(fields) = value else { return };
    let old = std::mem::take(fields);
    for (name, value) in old {
        if value.is_null() {
            continue;
        }
        let known = keys.iter().find(|k| k.eq_ignore_ascii_case(&name));
        fields.insert(known.map_or(name, |k| (*k).to_string()), value);
    }
}

/// The members of an evaluation's or another thing's answer that every write answer of the peer carries.
pub fn with_meta(mut value: Value, index: u64, known_leader: bool) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.insert("Index".to_string(), Value::from(index));
        fields.insert("KnownLeader".to_string(), Value::from(known_leader));
        fields.insert("LastContact".to_string(), Value::from(0));
        fields.insert("NextToken".to_string(), Value::from(""));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(value: Value, outer: &str) -> String {
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Row {
            #[expect(dead_code)]
            count: u32,
        }
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Body {
            #[expect(dead_code)]
            rows: Vec<Row>,
        }
        typed::<Body>(value, outer).unwrap_err().message
    }

    #[test]
    fn a_wrong_type_is_named_by_its_path() {
        let body = json!({"Rows": [{"Count": 1}, {"Count": "two"}]});
        let text = "Rows[1].Count: invalid type: string \"two\", expected u32";
        assert_eq!(refusal(body.clone(), ""), format!("json: {text}"));
        assert_eq!(refusal(body, "Outer"), format!("json: Outer.{text}"));
        assert_eq!(refusal(json!({}), ""), "json: missing field `Rows`");
        assert_eq!(refusal(json!(5), "Outer"), "json: Outer: invalid type: integer `5`, expected struct Body");
    }
}
