//! The random generator's state: a seed and a counter of draws. Only random instructions advance it.

/// State of Philox: the words of every random instruction are a function of (seed, draw, element
/// index).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generator {
    pub seed: i64,
    pub draw: i64,
}

impl Generator {
    /// Seeded by the system, unlike `PyTorch`'s default generator: two programs draw different
    /// numbers.
    pub(crate) fn from_entropy() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let word = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self { seed: i64::from_le_bytes(word.to_le_bytes()) & i64::MAX, draw: 0 }
    }

    /// Reserves the next `count` draws; returns the first.
    pub(crate) fn advance(&mut self, count: i64) -> i64 {
        let draw = self.draw;
        self.draw = self.draw.wrapping_add(count);
        draw
    }
}
