//! The processor's vector instructions, for loops that the compiler makes such instructions of.
//!
//! All of GT is compiled for the oldest processors of an architecture. A loop that is worth more is run by [`widest`]: it is
//! compiled for each set of instructions once, and what runs is that of the widest set that the processor has. The
//! arithmetic is the same: no set here joins a product and a sum into one rounding.

#![allow(unsafe_code, reason = "what is compiled for a processor runs only there")]

use std::sync::OnceLock;

/// A loop that is compiled for each set. A closure would not do: the compiler puts it in one place, for the oldest processors.
pub trait VectorLoop {
    /// To be `#[inline(always)]`, and all that it calls: what is not is compiled for the oldest processors.
    fn run(self);
}

/// A set of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// Those that every processor of the architecture has.
    Baseline,
    /// Vectors of 32 bytes.
    Avx2,
    /// The same, and those of 64 bytes with masks.
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

    /// Runs a loop as it is compiled for this set, or for the baseline where the processor does not have it.
    pub fn run(self, work: impl VectorLoop) {
        #[cfg(target_arch = "x86_64")]
        match self {
            // SAFETY: the processor has these instructions, as the line itself has asked.
            Self::Avx512 if self.is_there() => return unsafe { with_avx512(work) },
            // SAFETY: as above.
            Self::Avx2 if self.is_there() => return unsafe { with_avx2(work) },
            Self::Baseline | Self::Avx2 | Self::Avx512 => {}
        }
        work.run();
    }
}

/// Runs a loop as it is compiled for the widest set that the processor has.
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
