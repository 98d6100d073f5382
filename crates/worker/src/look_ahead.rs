//! Look-ahead of a machine in its stream before it executes an instruction.

/// Words behind an instruction that are looked at. The number of published words depends on time,
/// so no result may depend on this; tests reduce the look-ahead to check that none does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookAhead {
    /// All published words.
    #[default]
    Published,
    Nothing,
    /// All or none, drawn anew for each instruction; holds the generator's state.
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
                // Knuth's 64-bit generator, whose highest bits are the best.
                *state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                if *state >> 63 == 0 { next } else { &[] }
            }
        }
    }
}
