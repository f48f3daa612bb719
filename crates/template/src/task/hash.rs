//! Digests and base64.

use super::{failure, text_of};
use crate::builtin::CallError;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use md5::Md5;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(super) fn call(name: &str, a: &[Value]) -> Option<Result<Value, CallError>> {
    Some(match (name, a) {
        ("md5sum", [s]) => text_of(s).map(|s| hex(&Md5::digest(s)).into()),
        ("sha256Hex" | "sprig_sha256sum", [s]) => text_of(s).map(|s| hex(&Sha256::digest(s)).into()),
        ("hmacSHA256Hex", [message, key]) => {
            text_of(message).and_then(|message| Ok(hex(&hmac(text_of(key)?.as_bytes(), message.as_bytes())).into()))
        }
        ("base64Encode" | "sprig_b64enc", [s]) => text_of(s).map(|s| STANDARD.encode(s).into()),
        ("base64URLEncode", [s]) => text_of(s).map(|s| URL_SAFE.encode(s).into()),
        ("base64Decode" | "sprig_b64dec", [s]) => {
            text_of(s).and_then(|s| decoded(name, STANDARD.decode(s).or_else(|_| STANDARD_NO_PAD.decode(s))))
        }
        ("base64URLDecode", [s]) => {
            text_of(s).and_then(|s| decoded(name, URL_SAFE.decode(s).or_else(|_| URL_SAFE_NO_PAD.decode(s))))
        }
        _ => return None,
    })
}

fn decoded(name: &str, bytes: Result<Vec<u8>, base64::DecodeError>) -> Result<Value, CallError> {
    let bytes = bytes.map_err(|error| failure(format!("{name}: {error}")))?;
    String::from_utf8(bytes).map(Value::from).map_err(|_| failure(format!("{name}: what comes out is no UTF-8 text")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// RFC 2104 over SHA-256.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let short: Vec<u8> = if key.len() > BLOCK { Sha256::digest(key).to_vec() } else { key.to_vec() };
    let pad =
        |with: u8| short.iter().copied().chain(std::iter::repeat(0)).take(BLOCK).map(|b| b ^ with).collect::<Vec<_>>();
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}
