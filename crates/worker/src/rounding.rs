//! Rounding of what a worker contributes to sums with other hosts: which values, what was lost of them before, and how much in all.

mod residuals;

use crate::buffers::BorrowedBuffers;
use crate::codec::{Codec, RoundingError};
use crate::exchange::BucketMemory;
use crate::peers::PeerId;
use gt_protocol::{Id, Instruction};
use residuals::Residuals;

/// Sums of fewer bytes are left as they are: links would not pack them.
pub const ROUNDED_BYTES_MIN: usize = 16 * 1024;

/// Of what was reduced, on its way to the other members: element by element, since it is done wherever chunks end.
const OF_SUMS: Codec = Codec::Bf16;

/// For a message, which counts in whole numbers.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and more than fits becomes the most that fits"
)]
pub const fn parts_of_billion(share: f64) -> u64 {
    (share * 1e9).round() as u64
}

/// What has been rounded by a worker.
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

/// What one worker rounds, and has rounded.
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
    /// Of each value.
    pub ids: &'a [Id],
    /// Members pass on what they have reduced.
    pub is_two_hops: bool,
}

impl Rounding {
    pub fn new(codec: Codec) -> Self {
        Self { codec, residuals: Residuals::default(), stats: RoundingStats::default() }
    }

    pub const fn stats(&self) -> RoundingStats {
        self.stats
    }

    /// An instruction is about to run.
    pub fn seen(&mut self, session: u32, instruction: &Instruction<'_>) {
        if self.codec.keeps_residual() {
            self.residuals.seen(session, instruction);
        }
    }

    /// A worker has been introduced, perhaps in the place of another.
    pub fn forget_member(&mut self, member: u32) {
        self.residuals.forget_member(member);
    }

    /// Rounds what a bucket's values contribute.
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
