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

/// Writes a list that is a list on the wire even when empty.
///
/// # Errors
/// Whatever the serializer refuses.
pub fn always_list<T: Serialize, S: Serializer>(list: &List<T>, serializer: S) -> Result<S::Ok, S::Error> {
    list.0.serialize(serializer)
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

/// A duration the way the peer writes it in texts: `1h2m3.5s`, `1.5ms`, `0s`.
pub fn duration_text(nanos: Nanos) -> String {
    herdsman_expr::duration::format(nanos)
}

/// A point in time as RFC 3339 text in UTC, nanoseconds without trailing zeros.
pub fn time_text(nanos: Nanos) -> String {
    instant_text(nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND))
}

/// The same of seconds and nanoseconds, for times beyond what [`Nanos`] holds.
pub fn instant_text(seconds: i64, fraction: Nanos) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = herdsman_expr::calendar::civil(days);
    let mut text =
        format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    if fraction != 0 {
        text.push('.');
        text.push_str(format!("{fraction:09}").trim_end_matches('0'));
    }
    text.push('Z');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_the_peer_writes_them() {
        for (nanos, text) in [
            (0, "0s"),
            (5 * SECOND, "5s"),
            (1_157_369_613, "1.157369613s"),
            (300 * SECOND, "5m0s"),
            (3_600 * SECOND, "1h0m0s"),
            (1_500_000, "1.5ms"),
            (1_500, "1.5µs"),
            (7, "7ns"),
            (-90 * SECOND, "-1m30s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(duration_text(nanos), text);
        }
    }

    #[test]
    fn times_read_as_rfc_3339() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_796_084_737_956_764_313, "2026-12-01T00:25:37.956764313Z"),
            (951_782_400_500_000_000, "2000-02-29T00:00:00.5Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
        ] {
            assert_eq!(time_text(nanos), text);
        }
    }
}
