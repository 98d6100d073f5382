//! The only source of randomness: splitmix64. Nothing else in a simulation may differ from run to
//! run.

/// A stream of numbers that follows from its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A separate stream, so that draws of one part do not shift those of others.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `limit`; 0 where the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }

    pub fn index(&mut self, length: usize) -> usize {
        let limit = u64::try_from(length).expect("a length has 64 bits at most");
        usize::try_from(self.below(limit)).expect("a number below a length fits usize")
    }

    /// A number between both bounds, inclusive.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.index(from.len()))
    }
}
