//! How much of the stream a machine looks at before it executes an instruction.

/// What of the words behind an instruction is looked at. How many of them are published depends on time, so no result may
/// depend on any of this; tests take away what they have to see that none does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookAhead {
    /// All that is published.
    #[default]
    Published,
    Nothing,
    /// One or the other, drawn anew for each instruction: the state of the draws.
    Drawn(u64),
}

impl LookAhead {
    /// The words of `next` that are looked at.
    #[inline]
    pub fn seen<'w>(&mut self, next: &'w [u32]) -> &'w [u32] {
        match self {
            Self::Published => next,
            Self::Nothing => &[],
            Self::Drawn(state) => {
                // Knuth's generator of 64 bits, whose highest ones are the best.
                *state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                if *state >> 63 == 0 { next } else { &[] }
            }
        }
    }
}
