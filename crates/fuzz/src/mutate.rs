//! New texts of old ones.

use herdsman_world::{Rng, SeededRng};

/// Bytes a mutated text may have; the limits of the readers lie below and above.
const MAX_BYTES: usize = 200_000;

/// Most changes from one text to the next.
const MAX_CHANGES: usize = 6;

/// Most copies of a token in a row: more than any reader nests.
const MAX_NESTING: usize = 3_000;

/// Bytes that readers treat in a special way.
const SPECIAL: &[u8] = b"\0\n\r\t \"'\\{}[]()$%#/*=,:;.-+<>|&!?~^@0123456789eExX\xff\xc3";

/// Numbers at the edges of types.
const NUMBERS: &[&str] =
    &["0", "-1", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e400", "0.1e-400", "00"];

/// What decides how texts are changed.
pub struct Random(SeededRng);

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Random {
        Random(SeededRng::from_seed(seed))
    }

    /// A number below `limit`, or 0.
    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.0.below(limit)).unwrap_or(0)
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> Option<&'a T> {
        from.get(self.below(from.len())).copied()
    }
}

/// A text of the corpus with some changes.
pub fn text(random: &mut Random, corpus: &[String], tokens: &[&str]) -> String {
    let mut bytes = any(random, corpus).to_vec();
    for _ in 0..=random.below(MAX_CHANGES) {
        change(random, corpus, tokens, &mut bytes);
        bytes.truncate(MAX_BYTES);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn any<'c>(random: &mut Random, corpus: &'c [String]) -> &'c [u8] {
    corpus.get(random.below(corpus.len())).map_or(&[], |text| text.as_bytes())
}

fn change(random: &mut Random, corpus: &[String], tokens: &[&str], bytes: &mut Vec<u8>) {
    let at = random.below(bytes.len() + 1);
    let end = at + random.below(bytes.len() - at + 1);
    match random.below(9) {
        0 => {
            let bit = 1 << random.below(8);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bit;
            }
        }
        1 => {
            let special = SPECIAL.get(random.below(SPECIAL.len())).copied();
            put(bytes, at, at, special.as_slice());
        }
        2 => put(bytes, at, end, &[]),
        3 => {
            let part = bytes.get(at..end).unwrap_or_default().to_vec();
            put(bytes, at, at, &part.repeat(1 + random.below(3)));
        }
        4 => {
            let other = any(random, corpus);
            let from = random.below(other.len() + 1);
            let to = from + random.below(other.len() - from + 1);
            put(bytes, at, end, other.get(from..to).unwrap_or_default());
        }
        5 | 6 => {
            let token = random.pick(tokens).unwrap_or_default();
            put(bytes, at, at, token.as_bytes());
        }
        7 => {
            let number = random.pick(NUMBERS).unwrap_or_default();
            let digits = bytes.iter().skip(at).take_while(|b| b.is_ascii_digit()).count();
            put(bytes, at, at + digits, number.as_bytes());
        }
        _ => {
            // Deep nesting is rare: it costs the most.
            let most = if random.below(8) == 0 { MAX_NESTING } else { 8 };
            let token = random.pick(tokens).unwrap_or_default();
            put(bytes, at, at, token.repeat(random.below(most)).as_bytes());
        }
    }
}

/// Replaces a part; the positions lie in the text.
fn put(bytes: &mut Vec<u8>, start: usize, end: usize, new: &[u8]) {
    bytes.splice(start..end, new.iter().copied());
}
