//! Small value types shared by every noun: the lists and maps whose empty form is `null` on the wire.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A duration or a point in time in nanoseconds. Points in time count from the Unix epoch.
pub type Nanos = i64;

/// A name that many records repeat (namespace, job id, group, node name): shared, never copied.
pub type Name = Arc<str>;

/// One second in [`Nanos`].
pub const SECOND: Nanos = 1_000_000_000;

/// A list whose empty form is `null` on the wire, as the peer's nil slices are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        List(items)
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        List(items.into_iter().collect())
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Serialize> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() { serializer.serialize_none() } else { self.0.serialize(serializer) }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(List(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default()))
    }
}

/// A map whose empty form is `null` on the wire, as the peer's nil maps are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map<V>(pub BTreeMap<String, V>);

impl<V> Default for Map<V> {
    fn default() -> Self {
        Map(BTreeMap::new())
    }
}

impl<V> Deref for Map<V> {
    type Target = BTreeMap<String, V>;
    fn deref(&self) -> &BTreeMap<String, V> {
        &self.0
    }
}

impl<V> DerefMut for Map<V> {
    fn deref_mut(&mut self) -> &mut BTreeMap<String, V> {
        &mut self.0
    }
}

impl<V> From<BTreeMap<String, V>> for Map<V> {
    fn from(items: BTreeMap<String, V>) -> Self {
        Map(items)
    }
}

impl<K: Into<String>, V> FromIterator<(K, V)> for Map<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(items: I) -> Self {
        Map(items.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }
}

impl<'a, V> IntoIterator for &'a Map<V> {
    type Item = (&'a String, &'a V);
    type IntoIter = std::collections::btree_map::Iter<'a, String, V>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<V: Serialize> Serialize for Map<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() { serializer.serialize_none() } else { self.0.serialize(serializer) }
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Map<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Map(Option::<BTreeMap<String, V>>::deserialize(deserializer)?.unwrap_or_default()))
    }
}
