//! Selection of the processor's vector instructions, for loops that the compiler vectorises.
//!
//! All of GT is compiled for the oldest processors of an architecture. A loop that is worth more is
//! run by [`widest`]: it is compiled once for each instruction set, and the variant for the
//! processor's widest set runs. The arithmetic is the same: no set here fuses a product and a sum
//! into one rounding.

#![allow(unsafe_code, reason = "code for a processor's instructions runs only on that processor")]

use std::sync::OnceLock;

/// A loop that is compiled for each set. A closure would not do: the compiler compiles it once, for
/// the oldest processors.
pub trait VectorLoop {
    /// The loop. It and all functions that it calls must be `#[inline(always)]`: others are
    /// compiled for the oldest processors.
    fn run(self);
}

/// A set of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// Instructions that every processor of the architecture has.
    Baseline,
    /// Vectors of 32 bytes.
    Avx2,
    /// Vectors of 64 bytes, with masks.
    Avx512,
}

impl Vectors {
    /// The sets that this processor has, the narrowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        [Self::Baseline, Self::Avx2, Self::Avx512].into_iter().filter(|one| one.is_there())
    }

    #[cfg(target_arch = "x86_64")]
    fn is_there(self) -> bool {
        match self {
            Self::Baseline => true,
            Self::Avx2 => std::is_x86_feature_detected!("avx2"),
            Self::Avx512 => {
                std::is_x86_feature_detected!("avx512bw")
                    && std::is_x86_feature_detected!("avx512dq")
                    && std::is_x86_feature_detected!("avx512vl")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_there(self) -> bool {
        self == Self::Baseline
    }

    /// Runs the variant of a loop for this set, or for the baseline if the processor does not have
    /// it.
    pub fn run(self, work: impl VectorLoop) {
        #[cfg(target_arch = "x86_64")]
        match self {
            // SAFETY: the processor has these instructions, as the guard has checked.
            Self::Avx512 if self.is_there() => return unsafe { with_avx512(work) },
            // SAFETY: as above.
            Self::Avx2 if self.is_there() => return unsafe { with_avx2(work) },
            Self::Baseline | Self::Avx2 | Self::Avx512 => {}
        }
        work.run();
    }
}

/// Runs the variant of a loop for the processor's widest set.
pub fn widest(work: impl VectorLoop) {
    static WIDEST: OnceLock<Vectors> = OnceLock::new();
    let widest = WIDEST.get_or_init(|| Vectors::available().last().unwrap_or(Vectors::Baseline));
    widest.run(work);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn with_avx512(work: impl VectorLoop) {
    work.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(work: impl VectorLoop) {
    work.run();
}
