//! The API's JSON: borrowed views of the nouns, in the peer's field names and with its rules for null, empty and left out.
//!
//! A job is its own view: [`crate::job::Job`] serializes as the API shows it.

mod alloc;
mod event;
mod node;
mod work;

pub use alloc::*;
pub use event::*;
pub use node::*;
pub use work::*;

use crate::values::{Nanos, time_text};
use serde::{Serialize, Serializer};

/// A point in time as RFC 3339 text, or null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Time(pub Option<Nanos>);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(nanos) => serializer.serialize_str(&time_text(nanos)),
            None => serializer.serialize_none(),
        }
    }
}

impl Time {
    /// Nothing to show.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

/// An identifier as text; none is the empty text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Id<T>(pub Option<T>);

impl<T: std::fmt::Display> Serialize for Id<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(id) => serializer.collect_str(id),
            None => serializer.serialize_str(""),
        }
    }
}

impl<T> Id<T> {
    fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

/// A borrowed list that is null when empty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rows<'a, T>(pub &'a [T]);

impl<T: Serialize> Serialize for Rows<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() { serializer.serialize_none() } else { self.0.serialize(serializer) }
    }
}

impl<T> Rows<'_, T> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn no_map<K, V>(map: &&std::collections::BTreeMap<K, V>) -> bool {
    map.is_empty()
}
