//! Values and their types.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::number::Number;

/// A value. Cloning is cheap.
#[derive(Clone, Debug)]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    String(Arc<str>),
    /// Values of one type.
    List(Type, Arc<Vec<Value>>),
    /// Distinct values of one type, in order.
    Set(Type, Arc<Vec<Value>>),
    /// Names to values of one type.
    Map(Type, Arc<BTreeMap<String, Value>>),
    /// Values each of its own type.
    Tuple(Arc<Vec<Value>>),
    /// Names to values each of its own type.
    Object(Arc<BTreeMap<String, Value>>),
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Any type (of a null, or of the elements of an empty list).
    Any,
    /// Boolean.
    Bool,
    /// Number.
    Number,
    /// Text.
    String,
    /// `list(t)`
    List(Box<Type>),
    /// `set(t)`
    Set(Box<Type>),
    /// `map(t)`
    Map(Box<Type>),
    /// `tuple([a, b])`
    Tuple(Vec<Type>),
    /// `object({ a = b })`
    Object(BTreeMap<String, Type>),
}

impl Type {
    /// How messages name the type.
    pub fn name(&self) -> String {
        match self {
            Type::Any => "dynamic".to_owned(),
            Type::Bool => "bool".to_owned(),
            Type::Number => "number".to_owned(),
            Type::String => "string".to_owned(),
            Type::List(t) => format!("list of {}", t.name()),
            Type::Set(t) => format!("set of {}", t.name()),
            Type::Map(t) => format!("map of {}", t.name()),
            Type::Tuple(_) => "tuple".to_owned(),
            Type::Object(_) => "object".to_owned(),
        }
    }

    /// What a message asks for.
    pub fn wanted(&self) -> String {
        match self {
            Type::Number => "a number is required".to_owned(),
            Type::Bool => "a bool is required".to_owned(),
            Type::String => "a string is required".to_owned(),
            other => format!("{} required", other.name()),
        }
    }
}

impl Value {
    /// A text.
    pub fn string(text: impl AsRef<str>) -> Self {
        Value::String(Arc::from(text.as_ref()))
    }

    /// An integer.
    pub fn int(value: i64) -> Self {
        Value::Number(Number::from_i64(value))
    }

    /// A length.
    pub fn count(value: usize) -> Self {
        Value::Number(Number::from_u64(value as u64))
    }

    /// A tuple.
    pub fn tuple(items: Vec<Value>) -> Self {
        Value::Tuple(Arc::new(items))
    }

    /// A list of one type.
    pub fn list(kind: Type, items: Vec<Value>) -> Self {
        Value::List(kind, Arc::new(items))
    }

    /// An object.
    pub fn object(items: BTreeMap<String, Value>) -> Self {
        Value::Object(Arc::new(items))
    }

    /// A set: sorted, without repetitions.
    pub fn set(kind: Type, mut items: Vec<Value>) -> Self {
        items.sort_by(Value::order);
        items.dedup_by(|a, b| a.order(b) == Ordering::Equal);
        Value::Set(kind, Arc::new(items))
    }

    /// Whether there is no value.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The type.
    pub fn kind(&self) -> Type {
        match self {
            Value::Null => Type::Any,
            Value::Bool(_) => Type::Bool,
            Value::Number(_) => Type::Number,
            Value::String(_) => Type::String,
            Value::List(t, _) => Type::List(Box::new(t.clone())),
            Value::Set(t, _) => Type::Set(Box::new(t.clone())),
            Value::Map(t, _) => Type::Map(Box::new(t.clone())),
            Value::Tuple(items) => Type::Tuple(items.iter().map(Value::kind).collect()),
            Value::Object(items) => Type::Object(items.iter().map(|(k, v)| (k.clone(), v.kind())).collect()),
        }
    }

    /// A short name of the type for messages.
    pub fn kind_name(&self) -> String {
        match self {
            Value::Tuple(_) => "tuple".to_owned(),
            Value::Object(_) => "object".to_owned(),
            other => other.kind().name(),
        }
    }

    /// The elements of a list, set or tuple.
    pub fn items(&self) -> Option<&Arc<Vec<Value>>> {
        match self {
            Value::List(_, items) | Value::Set(_, items) | Value::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The members of a map or object.
    pub fn members(&self) -> Option<&Arc<BTreeMap<String, Value>>> {
        match self {
            Value::Map(_, members) | Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Equality as `==` has it: values of different types differ.
    pub fn equals(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::List(..), Value::List(..))
            | (Value::Set(..), Value::Set(..))
            | (Value::Tuple(..), Value::Tuple(..))
            | (Value::Map(..), Value::Map(..))
            | (Value::Object(..), Value::Object(..)) => self.order(other) == Ordering::Equal,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && self.order(other) == Ordering::Equal,
        }
    }

    /// A total order, for sets and for nothing else.
    pub fn order(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Number(a), Value::Number(b)) => a.compare(b),
            (Value::String(a), Value::String(b)) => a.cmp(b),
            _ => {
                if let (Some(a), Some(b)) = (self.items(), other.items()) {
                    for (x, y) in a.iter().zip(b.iter()) {
                        let order = x.order(y);
                        if order != Ordering::Equal {
                            return order;
                        }
                    }
                    return a.len().cmp(&b.len());
                }
                if let (Some(a), Some(b)) = (self.members(), other.members()) {
                    for ((ka, va), (kb, vb)) in a.iter().zip(b.iter()) {
                        let order = ka.cmp(kb).then_with(|| va.order(vb));
                        if order != Ordering::Equal {
                            return order;
                        }
                    }
                    return a.len().cmp(&b.len());
                }
                self.rank().cmp(&other.rank())
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Number(_) => 2,
            Value::String(_) => 3,
            Value::List(..) | Value::Set(..) | Value::Tuple(_) => 4,
            Value::Map(..) | Value::Object(_) => 5,
        }
    }
}
