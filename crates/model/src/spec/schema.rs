//! The shapes that the table of fields is made of.

/// What a block is made of.
#[derive(Debug)]
pub struct Shape {
    /// The name in error texts.
    pub name: &'static str,
    pub fields: &'static [Field],
}

/// One field of a block.
#[derive(Debug)]
pub struct Field {
    /// The name in JSON.
    pub wire: &'static str,
    /// The key in job files; empty where job files cannot set it.
    pub key: &'static str,
    pub kind: Kind,
    pub presence: Presence,
    pub default: Default,
}

/// How an absent field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// As null.
    Null,
    /// As the zero value of its kind.
    Zero,
    /// Not at all.
    LeftOut,
}

/// What values a field takes.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Text,
    Flag,
    /// A whole number within bounds, and the name of its type in error texts.
    Number {
        min: i128,
        max: i128,
        name: &'static str,
    },
    /// Base64 text.
    Bytes,
    Texts,
    TextMap,
    /// A map of free JSON values.
    JsonMap,
    TextsMap,
    /// A list of port numbers.
    Ports,
    Block(&'static Shape),
    Blocks(&'static Shape),
    BlockMap(&'static Shape),
}

pub(super) const INT8: Kind = Kind::Number { min: i8::MIN as i128, max: i8::MAX as i128, name: "int8" };
pub(super) const INT64: Kind = Kind::Number { min: i64::MIN as i128, max: i64::MAX as i128, name: "int" };
pub(super) const UINT8: Kind = Kind::Number { min: 0, max: u8::MAX as i128, name: "uint8" };
pub(super) const UINT16: Kind = Kind::Number { min: 0, max: u16::MAX as i128, name: "uint16" };
pub(super) const UINT32: Kind = Kind::Number { min: 0, max: u32::MAX as i128, name: "uint32" };
pub(super) const UINT64: Kind = Kind::Number { min: 0, max: u64::MAX as i128, name: "uint64" };
pub(super) const DURATION: Kind = Kind::Number { min: i64::MIN as i128, max: i64::MAX as i128, name: "time.Duration" };

/// What the canonical form puts where nothing was given.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// Nothing, or what a rule of its own says.
    Own,
    /// Nothing, and blocks inside get no defaults either.
    AsIs,
    Text(&'static str),
    Int(i64),
    Flag(bool),
    EmptyList,
    EmptyMap,
    /// A block with its own defaults.
    Filled,
    /// An empty list or map becomes null.
    NullIfEmpty,
    /// A number below one becomes one.
    AtLeastOne,
    /// A number below zero becomes zero.
    NotNegative,
}

pub(super) const fn opt(wire: &'static str, key: &'static str, kind: Kind, default: Default) -> Field {
    Field { wire, key, kind, presence: Presence::Null, default }
}

pub(super) const fn val(wire: &'static str, key: &'static str, kind: Kind, default: Default) -> Field {
    Field { wire, key, kind, presence: Presence::Zero, default }
}

pub(super) const fn omit_empty(wire: &'static str, key: &'static str, kind: Kind, default: Default) -> Field {
    Field { wire, key, kind, presence: Presence::LeftOut, default }
}

impl Shape {
    /// The field of this JSON name: the exact one, else one that differs in case only.
    pub fn field(&self, wire: &str) -> Option<&'static Field> {
        let fields = self.fields;
        fields.iter().find(|f| f.wire == wire).or_else(|| fields.iter().find(|f| f.wire.eq_ignore_ascii_case(wire)))
    }
}
