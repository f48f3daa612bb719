//! Sums that downloads are compared with.

use super::{Cancel, FetchError, http};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use std::io::Read;

/// Largest file of sums, bytes.
const MAX_SUM_FILE: u64 = 1024 * 1024;
/// Bytes read at a time.
const CHUNK: usize = 64 * 1024;

/// The kinds of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

/// A sum that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    kind: Kind,
    /// Lower-case hexadecimal.
    hex: String,
}

impl Checksum {
    /// Reads `type:hex` or `hex`, or fetches what `file:URL` names and finds the sum of `name` there.
    pub async fn find(text: &str, name: &str, client: &http::Client) -> Result<Checksum, FetchError> {
        let Some(url) = text.strip_prefix("file:") else {
            return Checksum::read(text).map_err(FetchError::lasting);
        };
        let sums = client.text(url, MAX_SUM_FILE).await?;
        in_file(&sums, name).ok_or_else(|| FetchError::passing(format!("no checksum found in: {url}")))
    }

    fn read(text: &str) -> Result<Checksum, String> {
        let (kind, hex) = match text.split_once(':') {
            Some(("md5", hex)) => (Kind::Md5, hex),
            Some(("sha1", hex)) => (Kind::Sha1, hex),
            Some(("sha256", hex)) => (Kind::Sha256, hex),
            Some(("sha512", hex)) => (Kind::Sha512, hex),
            Some((word, _)) => {
                return Err(format!("unsupported checksum type: {word}; use md5, sha1, sha256 or sha512"));
            }
            None => (by_length(text)?, text),
        };
        if by_length(hex)? != kind {
            return Err(format!("invalid checksum {text:?}: its length is not that of its type"));
        }
        Ok(Checksum { kind, hex: hex.to_ascii_lowercase() })
    }

    /// Compares what is read with the sum.
    pub fn verify(&self, data: &mut impl Read, path: &str, cancel: &Cancel) -> Result<(), FetchError> {
        let (got, digest) = match self.kind {
            Kind::Md5 => (sum::<Md5>(data, cancel)?, "*md5.digest"),
            Kind::Sha1 => (sum::<Sha1>(data, cancel)?, "*sha1.digest"),
            Kind::Sha256 => (sum::<Sha256>(data, cancel)?, "*sha256.digest"),
            Kind::Sha512 => (sum::<Sha512>(data, cancel)?, "*sha512.digest"),
        };
        if got == self.hex {
            return Ok(());
        }
        let wanted = &self.hex;
        Err(FetchError::passing(format!(
            "Checksums did not match for {path}.\nExpected: {wanted}\nGot: {got}\n{digest}"
        )))
    }
}

fn sum<D: Digest>(data: &mut impl Read, cancel: &Cancel) -> std::io::Result<String> {
    let mut digest = D::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        cancel.check()?;
        let count = data.read(&mut chunk)?;
        if count == 0 {
            return Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        digest.update(chunk.get(..count).unwrap_or_default());
    }
}

fn by_length(hex: &str) -> Result<Kind, String> {
    let digits = hex.bytes().all(|b| b.is_ascii_hexdigit());
    match hex.len() {
        32 if digits => Ok(Kind::Md5),
        40 if digits => Ok(Kind::Sha1),
        64 if digits => Ok(Kind::Sha256),
        128 if digits => Ok(Kind::Sha512),
        _ => Err(format!("invalid checksum: {hex:?} is no sum in hexadecimal")),
    }
}

/// Finds the sum of a file in lines `sum  name`, `SHA256 (name) = sum` or in a file that holds one sum only.
fn in_file(text: &str, name: &str) -> Option<Checksum> {
    let mut only = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (hex, file) = match line.split_once(" = ") {
            Some((left, hex)) => (hex.trim(), left.split_once('(').and_then(|(_, n)| n.strip_suffix(')'))),
            None => match line.split_once(char::is_whitespace) {
                Some((hex, file)) => (hex, Some(file.trim().trim_start_matches('*').trim_start_matches("./"))),
                None => (line, None),
            },
        };
        let Ok(sum) = Checksum::read(hex) else { continue };
        match file {
            Some(file) if file == name || file.rsplit('/').next() == Some(name) => return Some(sum),
            Some(_) => {}
            None => only = Some(sum),
        }
    }
    only
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_and_compared() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for text in [
            empty.to_string(),
            format!("sha256:{}", empty.to_uppercase()),
            "md5:d41d8cd98f00b204e9800998ecf8427e".into(),
        ] {
            Checksum::read(&text).unwrap().verify(&mut std::io::empty(), "f", &Cancel::default()).unwrap();
        }
        let wrong = Checksum::read(empty).unwrap().verify(&mut &b"x"[..], "/p/f", &Cancel::default()).unwrap_err();
        assert!(
            wrong.recoverable && wrong.why.starts_with("Checksums did not match for /p/f.\nExpected: e3b0"),
            "{wrong:?}"
        );
        for bad in ["", "md5:00", "crc:00000000", "sha1:d41d8cd98f00b204e9800998ecf8427e", "zz"] {
            assert!(Checksum::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nomad_9764_files_of_sums_have_several_forms() {
        let (a, b) = ("d41d8cd98f00b204e9800998ecf8427e", "0cc175b9c0f1b6a831c399e269772661");
        for text in [
            format!("{b}  other\n{a} *x.bin\n"),
            format!("MD5 (x.bin) = {a}\nMD5 (y) = {b}"),
            format!("{a}\n"),
            format!("# s\n{a}  ./dir/x.bin"),
        ] {
            assert_eq!(in_file(&text, "x.bin").unwrap().hex, a, "{text}");
        }
        assert_eq!(in_file(&format!("{b}  other\n"), "x.bin"), None);
    }
}
