//! Reading the configuration again: what changed, what of it acts at once, and what waits for a restart.

use crate::config::keys::{Effect, KEYS, Kind, Reload};
use crate::config::settings::Settings;
use crate::config::tree::{as_bool, as_duration, as_float, as_int, is_below, lookup};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A configuration that an agent may start with.
#[derive(Debug, Clone)]
pub struct Configuration {
    pub tree: Map<String, Value>,
    pub settings: Settings,
    /// What has no effect, as texts that name file and key.
    pub warnings: Vec<String>,
}

/// Reads files and flags again, as at the start.
pub type Read = Box<dyn Fn() -> Result<Configuration, String> + Send + Sync>;

/// The configuration in force, and how it is read again.
pub struct Reloader {
    read: Read,
    dev: bool,
    in_force: Mutex<Map<String, Value>>,
}

impl Reloader {
    /// For an agent that starts with this configuration.
    pub fn new(started: &Configuration, read: Read) -> Reloader {
        Reloader { read, dev: started.settings.dev, in_force: Mutex::new(started.tree.clone()) }
    }

    /// For an agent without files.
    pub fn none() -> Reloader {
        let read = || Err("this agent has no configuration to read".to_string());
        Reloader { read: Box::new(read), dev: true, in_force: Mutex::default() }
    }

    /// Reads the configuration again and has what may change without a restart applied. What may not stays as it was, and
    /// the log says so.
    ///
    /// # Errors
    /// What is wrong with the configuration; nothing is applied.
    pub fn reload(&self, apply: impl FnOnce(Settings)) -> Result<(), String> {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let read = (self.read)()?;
        let changes = changes(&in_force, &read.tree);
        let tree = keep_what_waits(&in_force, read.tree, &changes);
        apply(Settings::read(&tree, self.dev).map_err(|e| e.to_string())?);
        *in_force = tree;
        for warning in read.warnings {
            tracing::warn!(target: "agent", "{warning}");
        }
        let paths = |reload| changes.iter().filter(move |c| c.reload == reload).map(|c| c.path.join("."));
        for key in paths(Reload::Restart) {
            tracing::warn!(target: "agent", key, "the configuration has another value, which needs a restart of the agent");
        }
        let changed = paths(Reload::Live).collect::<Vec<_>>().join(", ");
        tracing::info!(target: "agent", changed, "configuration read again");
        Ok(())
    }
}

/// A key whose value is another one.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    path: Vec<String>,
    reload: Reload,
}

/// Keys that act and whose values differ.
fn changes(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<Change> {
    let (old, new) = (leaves(old), leaves(new));
    let mut paths: Vec<&Vec<String>> = old.keys().chain(new.keys()).collect();
    paths.sort();
    paths.dedup();
    let change = |path: &Vec<String>| {
        let (kind, reload) = acting(&path.join("."))?;
        let differ = match (old.get(path), new.get(path)) {
            (Some(old), Some(new)) => !is_same(kind, old, new),
            (old, new) => old.is_some() || new.is_some(),
        };
        differ.then(|| Change { path: path.clone(), reload })
    };
    paths.into_iter().filter_map(change).collect()
}

/// Values by their paths. Maps whose fields are the operator's own are one value, and so is an empty block: that it is there
/// can mean something.
fn leaves(tree: &Map<String, Value>) -> BTreeMap<Vec<String>, &Value> {
    let mut found = BTreeMap::new();
    let mut blocks = vec![(Vec::new(), tree)];
    while let Some((prefix, block)) = blocks.pop() {
        for (name, value) in block {
            let path: Vec<String> = prefix.iter().chain([name]).cloned().collect();
            match value {
                Value::Object(inner) if !inner.is_empty() && lookup(&path.join(".")).is_none() => {
                    blocks.push((path, inner));
                }
                _ => drop(found.insert(path, value)),
            }
        }
    }
    found
}

/// When a key's other value takes effect; none for a key without effect. An empty block is what the keys in it are.
fn acting(path: &str) -> Option<(Kind, Reload)> {
    if let Some(key) = lookup(path) {
        return (key.effect == Effect::Acts).then_some((key.kind, key.reload));
    }
    let mut below = KEYS.iter().filter(|k| is_below(k, path)).peekable();
    below.peek()?;
    below.all(|k| k.reload == Reload::Live).then_some((Kind::Map, Reload::Live))
}

/// Whether two values say the same, quoted or not.
fn is_same(kind: Kind, old: &Value, new: &Value) -> bool {
    fn both<T: PartialEq>(old: Option<T>, new: Option<T>) -> bool {
        old.is_some() && old == new
    }
    old == new
        || match kind {
            Kind::Bool => both(as_bool(old), as_bool(new)),
            Kind::Int => both(as_int(old), as_int(new)),
            Kind::Float => both(as_float(old), as_float(new)),
            Kind::Duration => both(as_duration(old), as_duration(new)),
            Kind::Text | Kind::List | Kind::Map => false,
        }
}

/// The new tree with the old values of what waits for a restart.
fn keep_what_waits(old: &Map<String, Value>, new: Map<String, Value>, changes: &[Change]) -> Map<String, Value> {
    let values = leaves(old);
    let mut tree = new;
    for change in changes.iter().filter(|c| c.reload == Reload::Restart) {
        match values.get(&change.path) {
            Some(value) => put(&mut tree, &change.path, (*value).clone()),
            None => take(&mut tree, &change.path, Some(old)),
        }
    }
    tree
}

/// Sets the value of a path.
fn put(tree: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [name] => drop(tree.insert(name.clone(), value)),
        [name, rest @ ..] => {
            let block = tree.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
            if !block.is_object() {
                *block = Value::Object(Map::new());
            }
            if let Value::Object(block) = block {
                put(block, rest, value);
            }
        }
    }
}

/// Takes the value of a path away, and the blocks that are empty without it and were not there before.
fn take(tree: &mut Map<String, Value>, path: &[String], before: Option<&Map<String, Value>>) {
    let Some((name, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        tree.remove(name);
    } else if let Some(Value::Object(block)) = tree.get_mut(name) {
        let before = before.and_then(|b| b.get(name)).and_then(Value::as_object);
        take(block, rest, before);
        if block.is_empty() && before.is_none() {
            tree.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    fn found(old: Value, new: Value) -> Vec<(String, Reload)> {
        changes(&tree(old), &tree(new)).into_iter().map(|c| (c.path.join("."), c.reload)).collect()
    }

    #[test]
    fn keys_are_told_apart_by_when_they_act() {
        let old = json!({"log_level": "INFO", "region": "a", "server": {"enabled": true, "eval_gc_threshold": "1h"}});
        let new =
            json!({"log_level": "WARN", "region": "b", "server": {"enabled": "true", "eval_gc_threshold": "60m"}});
        assert_eq!(
            found(old, new),
            [("log_level".to_string(), Reload::Live), ("region".to_string(), Reload::Restart)],
            "the same in other words is no change"
        );
    }

    #[test]
    fn blocks_may_come_and_go() {
        let without = json!({"client": {"enabled": true}});
        let with = json!({"client": {"enabled": true, "drain_on_shutdown": {}}});
        let path = "client.drain_on_shutdown".to_string();
        assert_eq!(found(without.clone(), with.clone()), [(path.clone(), Reload::Live)]);
        assert_eq!(found(with, without.clone()), [(path, Reload::Live)]);
        let volume = json!({"client": {"enabled": true, "host_volume": {"a": {"path": "/a"}}}});
        assert_eq!(found(without, volume), [("client.host_volume.a.path".to_string(), Reload::Restart)]);
    }

    #[test]
    fn what_has_no_effect_does_not_count() {
        assert_eq!(found(json!({}), json!({"disable_update_check": true, "ui": {}})), []);
    }

    #[test]
    fn what_waits_keeps_its_old_value_until_the_agent_starts_again() {
        let old = tree(json!({"region": "a", "client": {"enabled": true, "meta": {"x.y": "1"}}}));
        let new = tree(json!({"region": "b", "log_level": "WARN", "client": {"enabled": true, "node_class": "c"}}));
        let kept = keep_what_waits(&old, new.clone(), &changes(&old, &new));
        let expected = json!({"region": "a", "log_level": "WARN", "client": {"enabled": true, "meta": {"x.y": "1"}}});
        assert_eq!(Value::Object(kept), expected);
    }

    /// A value that no key has by default.
    fn other_value(key: &crate::config::keys::Key) -> Value {
        match (key.path, key.kind) {
            ("log_level", _) => json!("WARN"),
            ("server.job_max_source_size", _) => json!("2M"),
            ("server.job_max_priority", _) => json!(177),
            (_, Kind::Text) => json!("/word"),
            (_, Kind::Bool) => json!(true),
            (_, Kind::Int) => json!(77),
            (_, Kind::Float) => json!(7.5),
            (_, Kind::Duration) => json!("77s"),
            (_, Kind::List) => json!(["a"]),
            (_, Kind::Map) => json!({"a": "b"}),
        }
    }

    #[test]
    fn every_key_that_acts_at_once_does_and_no_other() {
        let base = tree(json!({"server": {"enabled": true}, "client": {"enabled": true}}));
        let started = Settings::read(&base, false).unwrap();
        // What is set here is what these have anyway.
        let same = ["server.enabled", "client.enabled", "client.nomad_service_discovery"];
        for key in KEYS.iter().filter(|k| k.effect == Effect::Acts && !same.contains(&k.path)) {
            let mut new = base.clone();
            let path: Vec<String> = key.path.split('.').map(|n| n.replace('*', "x")).collect();
            put(&mut new, &path, other_value(key));
            let changes = changes(&base, &new);
            assert_eq!(changes, [Change { path, reload: key.reload }]);
            let kept = Settings::read(&keep_what_waits(&base, new, &changes), false).unwrap();
            assert_eq!(kept != started, key.reload == Reload::Live, "{}", key.path);
        }
    }

    #[test]
    fn a_bad_file_changes_nothing() {
        let settings = Settings::read(&Map::new(), true).unwrap();
        let started = Configuration { tree: Map::new(), settings, warnings: Vec::new() };
        let reloader = Reloader::new(&started, Box::new(|| Err("a.hcl:3: no".to_string())));
        let mut applied = 0;
        assert_eq!(reloader.reload(|_| applied += 1), Err("a.hcl:3: no".to_string()));
        assert_eq!(applied, 0);
    }
}
