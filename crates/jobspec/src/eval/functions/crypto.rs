//! Hashes, passwords, RSA, UUIDs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use num_bigint::BigUint;
use sha1::{Digest, Sha1};
use sha2::{Sha256, Sha512};

use super::{Answer, Args, Argument, failed};
use crate::eval::convert;
use crate::eval::value::Value;

/// Largest RSA modulus, in bits.
const MAX_RSA_BITS: u64 = 8192;
/// The cost of a password hash when none is given.
const DEFAULT_COST: u32 = 10;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub(super) fn md5(args: &Args<'_>) -> Answer {
    Ok(Value::string(hex(&Md5::digest(args.text(0)))))
}

pub(super) fn sha1(args: &Args<'_>) -> Answer {
    Ok(Value::string(hex(&Sha1::digest(args.text(0)))))
}

pub(super) fn sha256(args: &Args<'_>) -> Answer {
    Ok(Value::string(hex(&Sha256::digest(args.text(0)))))
}

pub(super) fn sha512(args: &Args<'_>) -> Answer {
    Ok(Value::string(hex(&Sha512::digest(args.text(0)))))
}

/// A password hash takes time by its cost, so it counts as that many steps.
pub(super) fn bcrypt_steps(args: &[Argument]) -> usize {
    let cost = match args.get(1).map(|a| convert::to_number(&a.value)) {
        Some(Ok(cost)) => cost.to_i64().unwrap_or(0),
        _ => i64::from(DEFAULT_COST),
    };
    match u32::try_from(cost) {
        Ok(cost @ 4..=31) => 1usize << (cost + 6).min(30),
        _ => 0,
    }
}

pub(super) fn bcrypt(args: &Args<'_>) -> Answer {
    if args.all().len() > 2 {
        return failed("bcrypt() takes no more than two arguments");
    }
    let cost = if args.all().len() == 2 { args.int(1)? } else { i64::from(DEFAULT_COST) };
    let prefix = "error occured generating password";
    let Some(cost) = u32::try_from(cost).ok().filter(|c| (4..=31).contains(c)) else {
        return failed(format!("{prefix} crypto/bcrypt: cost {cost} is outside allowed inclusive range 4..31"));
    };
    let password = args.text(0).as_bytes();
    if password.len() > 72 {
        return failed(format!("{prefix} bcrypt: password length exceeds 72 bytes"));
    }
    let mut salt = [0u8; 16];
    args.host.random(&mut salt);
    match ::bcrypt::hash_with_salt(password, cost, salt) {
        Ok(hash) => Ok(Value::string(hash.format_for_version(::bcrypt::Version::TwoA))),
        Err(error) => failed(format!("{prefix} {error}")),
    }
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let h = hex(bytes);
    let part = |from: usize, to: usize| h.get(from..to).unwrap_or("").to_owned();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

fn set_version(bytes: &mut [u8; 16], version: u8) {
    bytes[6] = (bytes[6] & 0x0f) | (version << 4);
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
}

pub(super) fn uuidv4(args: &Args<'_>) -> Answer {
    let mut bytes = [0u8; 16];
    args.host.random(&mut bytes);
    set_version(&mut bytes, 4);
    Ok(Value::string(uuid_text(&bytes)))
}

fn parse_uuid(text: &str) -> Option<Vec<u8>> {
    let shape = |i: usize, b: u8| if matches!(i, 8 | 13 | 18 | 23) { b == b'-' } else { b.is_ascii_hexdigit() };
    if text.len() != 36 || !text.bytes().enumerate().all(|(i, b)| shape(i, b)) {
        return None;
    }
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    (0..16).map(|i| u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok()).collect()
}

pub(super) fn uuidv5(args: &Args<'_>) -> Answer {
    let namespace = args.text(0);
    let known = match namespace {
        "dns" | "6ba7b810-9dad-11d1-80b4-00c04fd430c8" => Some("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        "url" => Some("6ba7b811-9dad-11d1-80b4-00c04fd430c8"),
        "oid" => Some("6ba7b812-9dad-11d1-80b4-00c04fd430c8"),
        "x500" => Some("6ba7b814-9dad-11d1-80b4-00c04fd430c8"),
        _ => None,
    };
    let Some(space) = parse_uuid(known.unwrap_or(namespace)) else {
        let why = match namespace.len() {
            36 => "invalid UUID format".to_owned(),
            len => format!("invalid UUID length: {len}"),
        };
        return failed(format!("uuidv5() doesn't support namespace {namespace} ({why})"));
    };
    let mut hash = Sha1::new();
    hash.update(&space);
    hash.update(args.text(1).as_bytes());
    let digest = hash.finalize();
    let mut bytes = [0u8; 16];
    for (to, from) in bytes.iter_mut().zip(digest.iter()) {
        *to = *from;
    }
    set_version(&mut bytes, 5);
    Ok(Value::string(uuid_text(&bytes)))
}

/// One element of DER: its tag, its content, and what follows.
fn der(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 {
            return None;
        }
        let (len, rest) = rest.split_at_checked(count)?;
        (len.iter().fold(0usize, |n, b| (n << 8) | usize::from(*b)), rest)
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// Modulus and private exponent of a PKCS#1 key, or of one inside PKCS#8.
fn rsa_key(bytes: &[u8]) -> Option<(BigUint, BigUint)> {
    let (0x30, body, _) = der(bytes)? else { return None };
    let (0x02, _version, rest) = der(body)? else { return None };
    match der(rest)? {
        (0x02, modulus, rest) => {
            let (0x02, _public, rest) = der(rest)? else { return None };
            let (0x02, private, _) = der(rest)? else { return None };
            Some((BigUint::from_bytes_be(modulus), BigUint::from_bytes_be(private)))
        }
        (0x30, _algorithm, rest) => {
            let (0x04, inner, _) = der(rest)? else { return None };
            // The wrapped key cannot wrap another one.
            let (0x30, body, _) = der(inner)? else { return None };
            let (0x02, _, rest) = der(body)? else { return None };
            let (0x02, modulus, rest) = der(rest)? else { return None };
            let (0x02, _, rest) = der(rest)? else { return None };
            let (0x02, private, _) = der(rest)? else { return None };
            Some((BigUint::from_bytes_be(modulus), BigUint::from_bytes_be(private)))
        }
        _ => None,
    }
}

/// The label and the content of a PEM block.
fn pem(text: &str) -> Option<(&str, Vec<u8>)> {
    let start = text.find("-----BEGIN ")? + "-----BEGIN ".len();
    let rest = text.get(start..)?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    if body.contains(':') {
        return Some((label, Vec::new()));
    }
    let clean: String = body.chars().filter(|c| !c.is_whitespace()).collect();
    Some((label, STANDARD.decode(clean).ok()?))
}

pub(super) fn rsadecrypt(args: &Args<'_>) -> Answer {
    let (text, key) = (args.text(0), args.text(1));
    let Ok(cipher) = STANDARD.decode(text.trim()) else {
        return failed(format!("failed to decode input {text:?}: cipher text must be base64-encoded"));
    };
    let Some((label, bytes)) = pem(key) else { return failed("failed to parse key: no key found") };
    if bytes.is_empty() || !matches!(label, "RSA PRIVATE KEY" | "PRIVATE KEY") {
        return failed(format!(
            "failed to parse key: {label:?} is not supported; give an unencrypted RSA key as PKCS#1 or PKCS#8"
        ));
    }
    let Some((modulus, private)) = rsa_key(&bytes) else {
        return failed("failed to parse key: not an RSA private key");
    };
    if modulus.bits() > MAX_RSA_BITS || modulus.bits() < 256 {
        return failed(format!("failed to parse key: the modulus must have 256 to {MAX_RSA_BITS} bits"));
    }
    let size = modulus.bits().div_ceil(8) as usize;
    let number = BigUint::from_bytes_be(&cipher);
    if cipher.len() > size || number >= modulus {
        return failed("crypto/rsa: decryption error");
    }
    let plain = number.modpow(&private, &modulus).to_bytes_be();
    // The leading zero of the padding is lost in the number.
    let message = match plain.split_first() {
        Some((2, rest)) if plain.len() + 1 == size => {
            rest.iter().position(|b| *b == 0).filter(|at| *at >= 8).and_then(|at| rest.get(at + 1..))
        }
        _ => None,
    };
    match message.map(<[u8]>::to_vec).map(String::from_utf8) {
        Some(Ok(text)) => Ok(Value::string(text)),
        Some(Err(_)) => failed("the decrypted text is not valid UTF-8"),
        None => failed("crypto/rsa: decryption error"),
    }
}
