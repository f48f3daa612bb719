//! Identifiers: 16 bytes each, a type of its own per noun, written as 8-4-4-4-12 lower-case hex digits.
//!
//! The peer's identifiers are 16 random bytes without version or variant bits, so these are no RFC 4122 UUIDs.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Length of the text form of an identifier.
pub const ID_TEXT_LEN: usize = 36;

/// Length of the short form that command lines print.
pub const ID_SHORT_LEN: usize = 8;

/// Why a text is no identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("UUID must be {ID_TEXT_LEN} characters of the form 8-4-4-4-12 hex digits")]
pub struct BadId;

/// Writes 16 bytes as 8-4-4-4-12 lower-case hex digits.
fn write_id(bytes: [u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (position, byte) in bytes.iter().enumerate() {
        if matches!(position, 4 | 6 | 8 | 10) {
            f.write_str("-")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

/// Reads the text form; digits of either case.
fn read_id(text: &str) -> Result<[u8; 16], BadId> {
    if text.len() != ID_TEXT_LEN {
        return Err(BadId);
    }
    let mut bytes = [0u8; 16];
    let mut digits = 0usize;
    for (position, c) in text.bytes().enumerate() {
        if matches!(position, 8 | 13 | 18 | 23) {
            if c != b'-' {
                return Err(BadId);
            }
            continue;
        }
        let digit = char::from(c).to_digit(16).ok_or(BadId)?;
        let byte = bytes.get_mut(digits / 2).ok_or(BadId)?;
        // A hex digit is below 16, so it fits the byte.
        *byte = (*byte << 4) | u8::try_from(digit).map_err(|_| BadId)?;
        digits += 1;
    }
    Ok(bytes)
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// The first eight hex digits, as command lines print them.
            pub fn short(&self) -> String {
                self.to_string().chars().take(ID_SHORT_LEN).collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_id(self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_id(self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                read_id(text).map($name)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id_type!(/** Names an allocation. */ AllocId);
id_type!(/** Names a node. */ NodeId);
id_type!(/** Names an evaluation. */ EvalId);
id_type!(/** Names a deployment. */ DeploymentId);

/// Serde form of an optional identifier: an absent one is the empty text, as on the peer's wire.
pub mod opt_id {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Display;
    use std::str::FromStr;

    /// Writes the identifier, or the empty text.
    ///
    /// # Errors
    /// Whatever the serializer refuses.
    pub fn serialize<T: Display, S: Serializer>(id: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => serializer.collect_str(id),
            None => serializer.serialize_str(""),
        }
    }

    /// Reads an identifier; the empty text and null are none.
    ///
    /// # Errors
    /// The text is neither empty nor an identifier.
    pub fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T::Err: Display,
    {
        let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        match text.as_deref() {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_survives_its_text_form(bytes: [u8; 16]) {
            let id = AllocId(bytes);
            prop_assert_eq!(id.to_string().parse::<AllocId>(), Ok(id));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = text.parse::<AllocId>();
        }
    }

    #[test]
    fn a_malformed_id_is_refused() {
        for text in ["", "123", "13553b83-1464-02a9-91db-839911efff9", "13553b83x1464-02a9-91db-839911efff9e"] {
            assert_eq!(text.parse::<NodeId>(), Err(BadId), "{text}");
        }
    }
}
