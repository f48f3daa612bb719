//! Reading a checked `config` block.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::schema::{as_bool, as_number, as_text, duration, maps};

/// A block of a task's configuration. Missing keys read as empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config<'a>(pub Option<&'a Map<String, Value>>);

impl<'a> Config<'a> {
    pub fn new(value: &'a Value) -> Config<'a> {
        Config(value.as_object())
    }
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.and_then(|m| m.get(key)).filter(|v| !v.is_null())
    }
    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(as_text)
    }
    pub fn text_or_empty(&self, key: &str) -> String {
        self.text(key).unwrap_or_default()
    }
    /// A whole number; fractions are cut off.
    #[allow(clippy::cast_possible_truncation)]
    pub fn number(&self, key: &str) -> Option<i64> {
        // A float beyond the range becomes the nearest end of it.
        self.get(key).and_then(|v| v.as_i64().or_else(|| as_number(v).map(|n| n as i64)))
    }
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(as_bool)
    }
    pub fn span(&self, key: &str) -> Option<Duration> {
        self.get(key).and_then(Value::as_str).and_then(duration)
    }
    pub fn list(&self, key: &str) -> Vec<String> {
        let items = self.get(key).and_then(Value::as_array);
        items.into_iter().flatten().filter_map(as_text).collect()
    }
    /// All blocks of this name as one map.
    pub fn map(&self, key: &str) -> BTreeMap<String, String> {
        let blocks = self.get(key).and_then(maps).unwrap_or_default();
        blocks.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), as_text(v)?))).collect()
    }
    pub fn blocks(&self, key: &str) -> Vec<Config<'a>> {
        let blocks = self.get(key).and_then(maps).unwrap_or_default();
        blocks.into_iter().map(|m| Config(Some(m))).collect()
    }
}
