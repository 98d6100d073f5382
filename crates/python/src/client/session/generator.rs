//! The random generator's state: a seed and a counter of draws. Only random instructions advance it.

/// Words of every random instruction are Philox of (seed, draw, element index).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generator {
    pub seed: i64,
    pub draw: i64,
}

impl Generator {
    /// Seeded from the system, as `PyTorch`'s default generator is not: two programs draw different numbers.
    pub(crate) fn from_entropy() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let word = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self { seed: i64::from_le_bytes(word.to_le_bytes()) & i64::MAX, draw: 0 }
    }

    /// The next `count` draws; returns the first.
    pub(crate) fn advance(&mut self, count: i64) -> i64 {
        let draw = self.draw;
        self.draw = self.draw.wrapping_add(count);
        draw
    }
}
