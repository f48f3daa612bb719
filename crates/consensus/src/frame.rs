//! How a record lies in a file: length, sequence number and checksum in front, so that a torn or
//! damaged one is told from a whole one.
//!
//! ```text
//! 0   magic "HRF" and version 1
//! 4   kind
//! 5   three zero bytes
//! 8   length of the payload, u32
//! 12  sequence number, u64
//! 20  CRC-32C of the salt (u64), bytes 0..20 and the payload
//! 24  payload, then zeros up to a multiple of 8
//! ```
//! Numbers are little endian. The salt is random for each log, so that no command can hold bytes
//! that look like a record of the log it is in.

use std::fmt;

/// Bytes before the payload.
pub(crate) const FRAME_HEAD: usize = 24;
/// Records begin at multiples of this.
pub(crate) const FRAME_ALIGN: usize = 8;
/// The largest payload.
pub(crate) const MAX_PAYLOAD: usize = 48 * 1024 * 1024;

const MAGIC: [u8; 4] = *b"HRF\x01";

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Segment = 1,
    Entries = 2,
    Vote = 3,
    Truncate = 4,
    Purge = 5,
    SnapshotHead = 16,
    SnapshotData = 17,
    SnapshotEnd = 18,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        [
            Kind::Segment,
            Kind::Entries,
            Kind::Vote,
            Kind::Truncate,
            Kind::Purge,
            Kind::SnapshotHead,
            Kind::SnapshotData,
            Kind::SnapshotEnd,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Zeros: nothing was written here.
    Nothing,
    /// No record begins here.
    Magic,
    /// The record goes beyond the file or the largest size.
    Length(u64),
    /// The checksum does not fit.
    Checksum,
    /// Whole, but of a kind this version does not know.
    Kind(u8),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Nothing => f.write_str("there is no record"),
            Damage::Magic => f.write_str("no record begins here"),
            Damage::Length(length) => write!(f, "a record of {length} bytes does not fit"),
            Damage::Checksum => f.write_str("the checksum does not fit the record"),
            Damage::Kind(kind) => write!(f, "a record of kind {kind}, which this version does not know"),
        }
    }
}

/// A whole record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub kind: Kind,
    pub sequence: u64,
    pub payload: &'a [u8],
    /// Bytes up to the next record.
    pub size: usize,
}

/// The fixed part in front of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub kind: u8,
    pub length: usize,
    pub sequence: u64,
    checksum: u32,
}

/// Bytes a payload of `length` takes in the file.
pub(crate) fn frame_size(length: usize) -> usize {
    (FRAME_HEAD + length).next_multiple_of(FRAME_ALIGN)
}

/// The record as it is written. Fails when the payload is larger than [`MAX_PAYLOAD`].
pub(crate) fn encode(
    kind: Kind,
    salt: u64,
    sequence: u64,
    payload: &impl prost::Message,
) -> Result<Vec<u8>, std::io::Error> {
    let length = payload.encoded_len();
    let short = u32::try_from(length).ok().filter(|_| length <= MAX_PAYLOAD).ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            format!("a record of {length} bytes is larger than the {MAX_PAYLOAD} allowed"),
        )
    })?;
    let mut head = [0_u8; 20];
    put(&mut head, 0, &MAGIC);
    put(&mut head, 4, &[kind as u8]);
    put(&mut head, 8, &short.to_le_bytes());
    put(&mut head, 12, &sequence.to_le_bytes());
    let mut bytes = Vec::with_capacity(frame_size(length));
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&[0; 4]);
    payload.encode(&mut bytes).map_err(std::io::Error::other)?;
    let checksum = checksum(salt, &head, bytes.get(FRAME_HEAD..).unwrap_or_default());
    put(&mut bytes, 20, &checksum.to_le_bytes());
    bytes.resize(frame_size(length), 0);
    Ok(bytes)
}

/// Copies `data` to `at`; the caller's buffer is long enough.
fn put(bytes: &mut [u8], at: usize, data: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(data) {
        *to = *from;
    }
}

fn checksum(salt: u64, head: &[u8], payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&salt.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, head), payload)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Reads the fixed part, without looking at the payload.
pub(crate) fn head(bytes: &[u8]) -> Result<Head, Damage> {
    let Some(head) = bytes.get(..FRAME_HEAD) else {
        return Err(if bytes.iter().all(|byte| *byte == 0) { Damage::Nothing } else { Damage::Magic });
    };
    if head.iter().all(|byte| *byte == 0) {
        return Err(Damage::Nothing);
    }
    let short = (array(head, 0), array(head, 4), array(head, 8), array(head, 12), array(head, 20));
    let (Some(magic), Some([kind, 0, 0, 0]), Some(length), Some(sequence), Some(checksum)) = short else {
        return Err(Damage::Magic);
    };
    if magic != MAGIC {
        return Err(Damage::Magic);
    }
    let length = u32::from_le_bytes(length);
    match usize::try_from(length) {
        Ok(length) if length <= MAX_PAYLOAD => {
            Ok(Head { kind, length, sequence: u64::from_le_bytes(sequence), checksum: u32::from_le_bytes(checksum) })
        }
        _ => Err(Damage::Length(u64::from(length))),
    }
}

/// The record at the beginning of `bytes`.
pub(crate) fn decode(bytes: &[u8], salt: u64) -> Result<Frame<'_>, Damage> {
    let head = head(bytes)?;
    let end = FRAME_HEAD + head.length;
    let payload = bytes.get(FRAME_HEAD..end).ok_or(Damage::Length(head.length as u64))?;
    if checksum(salt, bytes.get(..20).unwrap_or_default(), payload) != head.checksum {
        return Err(Damage::Checksum);
    }
    let kind = Kind::from_byte(head.kind).ok_or(Damage::Kind(head.kind))?;
    Ok(Frame { kind, sequence: head.sequence, payload, size: frame_size(head.length) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TruncateRecord;

    #[test]
    fn golden_bytes() {
        let bytes = encode(Kind::Truncate, 7, 3, &TruncateRecord { since: 300 }).unwrap();
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "48524601040000000300000003000000000000005f0845ce08ac020000000000");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = encode(Kind::Truncate, 1, 9, &TruncateRecord { since: 5 }).unwrap();
        assert_eq!(decode(&good, 1).unwrap().sequence, 9);
        assert_eq!(decode(&good, 2).unwrap_err(), Damage::Checksum);
        for at in 0..FRAME_HEAD + 2 {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(decode(&bad, 1).is_err(), "byte {at} bit {bit}");
            }
        }
        assert!(matches!(decode(&good[..25], 1), Err(Damage::Length(2))));
        assert_eq!(decode(&[0; 64], 1).unwrap_err(), Damage::Nothing);
    }
}
