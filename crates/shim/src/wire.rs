//! The byte format shared by the shim program and its callers: frames on the
//! sockets and records on disk.
//!
//! This file is compiled twice: into the library and (through `#[path]`) into
//! the shim program, which has no dependencies. Hence the small hand-written
//! encoding: a body is a row of fields, each `tag: u8`, `length: u32 LE`,
//! `bytes`. Unknown tags are skipped, so a newer side may add fields.

/// Version of frames and records. A reader refuses any other.
pub const VERSION: u16 = 1;
/// Longest frame either side accepts, in bytes: a start request carries the
/// whole environment, and the kernel's own limit for that is below this.
pub const MAX_FRAME: usize = 8 << 20;
/// Bytes in front of each frame's body: length, version, kind.
pub const FRAME_HEADER: usize = 7;
/// Marks a record file.
pub const RECORD_MAGIC: [u8; 4] = *b"HSR1";
/// Longest record file accepted, in bytes.
pub const MAX_RECORD: usize = 1 << 20;

/// Where in a run file the exit record begins. Both records fit in one block of
/// the disk, so that a task's end can be written also when the disk is full.
pub const EXIT_OFFSET: usize = 3072;
/// Length of a run file with both records.
pub const RUN_FILE: usize = 4096;

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// The bytes end inside a field or frame.
    Truncated,
    /// A length is above [`MAX_FRAME`] or [`MAX_RECORD`].
    TooLong,
    /// Written by another version of the protocol.
    Version(u16),
    /// A field has the wrong size or an impossible value.
    Field(u8),
    /// The record's checksum does not match: torn or damaged.
    Checksum,
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WireError::Truncated => write!(f, "the bytes end too early"),
            WireError::TooLong => write!(f, "longer than allowed"),
            WireError::Version(v) => write!(f, "protocol version {v}, this program speaks {VERSION}"),
            WireError::Field(tag) => write!(f, "field {tag} has an impossible value"),
            WireError::Checksum => write!(f, "checksum does not match"),
        }
    }
}

impl std::error::Error for WireError {}

/// Builds a body field by field.
#[derive(Default, Debug)]
pub struct Enc {
    buf: Vec<u8>,
}

impl Enc {
    /// An empty body.
    pub fn new() -> Enc {
        Enc::default()
    }
    /// Adds a field of raw bytes, also when empty.
    pub fn bytes(&mut self, tag: u8, value: &[u8]) -> &mut Enc {
        self.buf.push(tag);
        self.buf.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.buf.extend_from_slice(value);
        self
    }
    /// Adds a number; zero is left out (it is what a reader assumes).
    pub fn num(&mut self, tag: u8, value: u64) -> &mut Enc {
        if value == 0 { self } else { self.bytes(tag, &value.to_le_bytes()) }
    }
    /// Adds a signed number; zero is left out.
    pub fn signed(&mut self, tag: u8, value: i64) -> &mut Enc {
        self.num(tag, value.cast_unsigned())
    }
    /// Adds a flag; false is left out.
    pub fn flag(&mut self, tag: u8, value: bool) -> &mut Enc {
        self.num(tag, u64::from(value))
    }
    /// Adds one field per element.
    pub fn list(&mut self, tag: u8, values: &[Vec<u8>]) -> &mut Enc {
        for value in values {
            self.bytes(tag, value);
        }
        self
    }
    /// The body.
    pub fn done(self) -> Vec<u8> {
        self.buf
    }
}

/// Reads a body field by field.
#[derive(Debug)]
pub struct Dec<'a> {
    rest: &'a [u8],
}

impl<'a> Dec<'a> {
    /// Starts at the first field.
    pub fn new(body: &'a [u8]) -> Dec<'a> {
        Dec { rest: body }
    }
    /// The next field, or none at the end.
    pub fn field(&mut self) -> Result<Option<(u8, &'a [u8])>, WireError> {
        let Some((&tag, rest)) = self.rest.split_first() else { return Ok(None) };
        let (len, rest) = rest.split_first_chunk::<4>().ok_or(WireError::Truncated)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| WireError::TooLong)?;
        let (value, rest) = rest.split_at_checked(len).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(Some((tag, value)))
    }
}

/// Reads a number field.
pub fn num(tag: u8, value: &[u8]) -> Result<u64, WireError> {
    let bytes: [u8; 8] = value.try_into().map_err(|_| WireError::Field(tag))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads a signed number field.
pub fn signed(tag: u8, value: &[u8]) -> Result<i64, WireError> {
    num(tag, value).map(u64::cast_signed)
}

/// Reads a number that fits 32 bits.
pub fn num32(tag: u8, value: &[u8]) -> Result<u32, WireError> {
    u32::try_from(num(tag, value)?).map_err(|_| WireError::Field(tag))
}

/// Reads a signed number that fits 32 bits.
pub fn signed32(tag: u8, value: &[u8]) -> Result<i32, WireError> {
    i32::try_from(signed(tag, value)?).map_err(|_| WireError::Field(tag))
}

/// A whole frame: length of what follows, version, kind, body.
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + FRAME_HEADER);
    out.extend_from_slice(&u32::try_from(body.len() + 3).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.push(kind);
    out.extend_from_slice(body);
    out
}

/// Looks for a whole frame at the start of `buf`: its kind, body, and how many
/// bytes it takes up. None when more bytes are needed.
#[allow(clippy::type_complexity)]
pub fn take_frame(buf: &[u8]) -> Result<Option<(u8, &[u8], usize)>, WireError> {
    let Some((len, rest)) = buf.split_first_chunk::<4>() else { return Ok(None) };
    let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| WireError::TooLong)?;
    if len > MAX_FRAME {
        return Err(WireError::TooLong);
    }
    let Some((whole, _)) = rest.split_at_checked(len) else { return Ok(None) };
    let (version, whole) = whole.split_first_chunk::<2>().ok_or(WireError::Truncated)?;
    let version = u16::from_le_bytes(*version);
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let (&kind, body) = whole.split_first().ok_or(WireError::Truncated)?;
    Ok(Some((kind, body, len + 4)))
}

/// FNV-1a: enough to tell a torn or damaged record from a whole one.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// A record file: magic, version, length, checksum, body.
pub fn record(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 18);
    out.extend_from_slice(&RECORD_MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&checksum(body).to_le_bytes());
    out.extend_from_slice(body);
    out
}

/// The body of a record file. Bytes after the record are ignored, because a
/// shorter record may have been written over a longer one.
pub fn open_record(bytes: &[u8]) -> Result<&[u8], WireError> {
    let (magic, rest) = bytes.split_first_chunk::<4>().ok_or(WireError::Truncated)?;
    if *magic != RECORD_MAGIC {
        return Err(WireError::Checksum);
    }
    let (version, rest) = rest.split_first_chunk::<2>().ok_or(WireError::Truncated)?;
    let version = u16::from_le_bytes(*version);
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let (len, rest) = rest.split_first_chunk::<4>().ok_or(WireError::Truncated)?;
    let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| WireError::TooLong)?;
    if len > MAX_RECORD {
        return Err(WireError::TooLong);
    }
    let (sum, rest) = rest.split_first_chunk::<8>().ok_or(WireError::Truncated)?;
    let (body, _) = rest.split_at_checked(len).ok_or(WireError::Truncated)?;
    if checksum(body) != u64::from_le_bytes(*sum) {
        return Err(WireError::Checksum);
    }
    Ok(body)
}
