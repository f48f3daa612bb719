//! Random numbers and identifiers.

use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Where randomness comes from. Not for secrets: keys come from the operating system directly.
pub trait Rng: Send + Sync + fmt::Debug {
    /// The next 64 random bits.
    fn u64(&self) -> u64;

    /// 16 random bytes.
    fn bytes16(&self) -> [u8; 16] {
        (u128::from(self.u64()) << 64 | u128::from(self.u64())).to_be_bytes()
    }

    /// A new identifier: 16 random bytes, all of them random (no version bits), as the wire form of
    /// allocations, evaluations and nodes has it.
    fn uuid(&self) -> [u8; 16] {
        self.bytes16()
    }

    /// A number below `n`, each equally likely; 0 when `n` is 0.
    fn below(&self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        // Multiply and reject: without the rejection small results would be likelier.
        loop {
            let wide = u128::from(self.u64()) * u128::from(n);
            #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
            let low = wide as u64;
            if low >= n.wrapping_neg() % n {
                return u64::try_from(wide >> 64).unwrap_or(0);
            }
        }
    }
}

/// One step of SplitMix64's output function: spreads a seed over all bits.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// xoshiro256++ behind a lock; the same seed gives the same numbers.
#[derive(Debug)]
pub struct SeededRng {
    state: Mutex<[u64; 4]>,
}

impl SeededRng {
    /// A generator that follows from `seed`.
    #[must_use]
    pub fn from_seed(seed: u64) -> SeededRng {
        let mut state = [0; 4];
        let mut at = seed;
        for word in &mut state {
            *word = mix(at);
            at = at.wrapping_add(0x9E37_79B9_7F4A_7C15);
        }
        SeededRng { state: Mutex::new(state) }
    }

    /// A generator with 256 bits of seed from the operating system.
    ///
    /// Fails when the operating system's random source cannot be read.
    pub fn from_os() -> io::Result<SeededRng> {
        let mut state = [0; 4];
        for word in &mut state {
            *word = getrandom::u64()
                .map_err(|error| io::Error::other(format!("read the operating system's random source: {error}")))?;
        }
        // All zero is the one state the generator cannot leave.
        state[3] |= 1;
        Ok(SeededRng { state: Mutex::new(state) })
    }
}

impl Rng for SeededRng {
    fn u64(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let [a, b, c, d] = &mut *state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_stream() {
        let (a, b, c) = (SeededRng::from_seed(7), SeededRng::from_seed(7), SeededRng::from_seed(8));
        let take = |rng: &SeededRng| (0..32).map(|_| rng.u64()).collect::<Vec<_>>();
        let first = take(&a);
        assert_eq!(first, take(&b));
        assert_ne!(first, take(&c));
    }

    #[test]
    fn below_covers_its_range_and_stays_in_it() {
        let rng = SeededRng::from_seed(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7000 {
            seen[usize::try_from(rng.below(7)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        assert!(rng.below(u64::MAX) < u64::MAX);
    }

    #[test]
    fn identifiers_differ() {
        let rng = SeededRng::from_os().unwrap();
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| rng.uuid()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
