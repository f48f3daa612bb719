//! The seeded generator: the only source of chance, and a function of the seed.

/// A small fast generator (splitmix64). Not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder is below 2^-32 for the bounds used here (nodes, ports).
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Puts the items in an order that depends on nothing but the seed.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = u64::try_from(last).unwrap_or(u64::MAX).saturating_add(1);
            let other = usize::try_from(self.below(bound)).unwrap_or(0);
            items.swap(last, other);
        }
    }
}
