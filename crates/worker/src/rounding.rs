//! Rounding of a worker's contributions to sums with other hosts: the values that are rounded,
//! their residuals, and statistics.

mod residuals;

use crate::buffers::BorrowedBuffers;
use crate::codec::{Codec, RoundingError};
use crate::exchange::BucketMemory;
use crate::peers::PeerId;
use gt_protocol::{Id, Instruction};
use residuals::Residuals;

/// Bytes below which sums are not rounded: links would not pack them.
pub const ROUNDED_BYTES_MIN: usize = 16 * 1024;

/// Codec of reduced sums on their way to the other members: one that works element by element,
/// because chunks may end anywhere.
const OF_SUMS: Codec = Codec::Bf16;

/// Converts an error for a message, which has integers only.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and too large a number saturates"
)]
pub const fn parts_of_billion(share: f64) -> u64 {
    (share * 1e9).round() as u64
}

/// Statistics of a worker's rounding.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundingStats {
    pub reductions: u64,
    pub error: RoundingError,
    /// The largest relative error of one reduction.
    pub error_max: f64,
}

impl RoundingStats {
    pub fn count(&mut self, error: RoundingError) {
        self.reductions += 1;
        self.error.add(error);
        self.error_max = self.error_max.max(error.relative());
    }
}

/// Rounding of one worker: its codec, residuals and statistics.
#[derive(Debug)]
pub struct Rounding {
    codec: Codec,
    residuals: Residuals,
    stats: RoundingStats,
}

/// One reduction whose operands are rounded.
#[derive(Clone, Copy, Debug)]
pub struct RoundedReduction<'a> {
    pub session: u32,
    pub members: &'a [PeerId],
    /// Id of each value.
    pub ids: &'a [Id],
    /// True if members pass on reduced values in a second hop.
    pub is_two_hops: bool,
}

impl Rounding {
    pub fn new(codec: Codec) -> Self {
        Self { codec, residuals: Residuals::default(), stats: RoundingStats::default() }
    }

    pub const fn stats(&self) -> RoundingStats {
        self.stats
    }

    /// Counts an instruction that is about to run.
    pub fn seen(&mut self, session: u32, instruction: &Instruction<'_>) {
        if self.codec.keeps_residual() {
            self.residuals.seen(session, instruction);
        }
    }

    /// Drops the residuals for a worker that has been introduced, perhaps in place of an earlier
    /// one.
    pub fn forget_member(&mut self, member: u32) {
        self.residuals.forget_member(member);
    }

    /// Rounds the contributions of a bucket's values.
    pub fn round<M: BorrowedBuffers>(
        &mut self,
        bucket: &mut BucketMemory<M>,
        reduction: RoundedReduction<'_>,
    ) {
        let Self { codec, residuals, stats } = self;
        let mut error = RoundingError::default();
        let sums = reduction.is_two_hops.then_some(OF_SUMS);
        bucket.round(sums, &mut |index, bytes| {
            let id = reduction.ids.get(index).filter(|_| codec.keeps_residual());
            let (session, members) = (reduction.session, reduction.members);
            let key = id.and_then(|id| residuals.key(session, members, *id, bytes.len()));
            let residual = key.map(|key| residuals.of(&key)).unwrap_or_default();
            error.add(codec.round(bytes, residual));
        });
        stats.count(error);
    }
}
