//! Backends of collectives whose bytes do not go through the workers' own messages: the interface
//! to an engine whose backend moves them itself, from device to device or by a process group.
//!
//! The members of such a collective negotiate in rounds: in each round every member sends a payload
//! to the others, and each backend processes the payloads that it receives. The machine knows the
//! end of a round, the members that failed, and the memory that is borrowed; the payloads are
//! opaque to it. Nothing here waits for a device.

use crate::failure::Fault;
use crate::strided_range::StridedRange;
use gt_protocol::placement::ReduceOp;
use gt_protocol::{Attr, Dtype, Instruction};
use smallvec::SmallVec;

/// Backend of a collective, in the order of the choice `backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// From the memory of one device to another's, on one host.
    Device,
    /// Through a process group.
    Group,
}

impl Backend {
    /// The backend that an instruction names; `None` where it uses the workers' messages.
    pub fn of(instruction: &Instruction<'_>) -> Result<Option<Self>, Fault> {
        let backend = instruction.attr("backend");
        for (index, known) in (0..).zip([Self::Device, Self::Group]) {
            if *backend == Attr::Choice(index) {
                return Ok(Some(known));
            }
        }
        if *backend == Attr::Absent {
            return Ok(None);
        }
        Err(Fault::protocol(format!("the backend {backend:?}")))
    }

    /// Its word in a trace, and its name in a worker's kernels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Group => "group",
        }
    }
}

/// A collective in the form that a backend gets.
#[derive(Clone, Copy, Debug)]
pub struct Collective<'a> {
    pub backend: Backend,
    /// The instruction, for its operator and attributes.
    pub instruction: &'a Instruction<'a>,
    /// Tag of the collective, the same at all members and different for every collective.
    pub tag: u64,
    /// Members in the group's order; for a `send` and its `receive` each member lists itself first.
    pub members: &'a [u32],
    /// Index of this worker among the members.
    pub me: usize,
}

/// Copy of a range of another member's memory to a range of our result.
#[derive(Clone, Copy, Debug)]
pub struct Pull {
    /// The member's index in the group.
    pub place: usize,
    /// True if it is copied from the member's result, once that is reduced, instead of its operand.
    pub of_result: bool,
    pub from: StridedRange,
    pub to: StridedRange,
}

/// Reduction of ranges of the members' memory to a range of our result.
#[derive(Clone, Debug)]
pub struct ReadReduction {
    pub reduce_op: ReduceOp,
    /// A range of each member's operand, in the group's order, our own included.
    pub shards: SmallVec<[StridedRange; 8]>,
    pub to: StridedRange,
}

/// Everything that a member does by reading other members' memory: first reductions, then copies.
#[derive(Clone, Debug)]
pub struct DirectReads {
    pub dtype: Dtype,
    /// Copy from our operand to our result.
    pub kept: Option<(StridedRange, StridedRange)>,
    pub reduction: Option<ReadReduction>,
    pub pulls: SmallVec<[Pull; 8]>,
    /// True if others read our result too, as soon as it is reduced.
    pub shares_result: bool,
}

/// Result of a backend's round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It sends this payload in one more round, and continues when that is over.
    Continue(Vec<u8>),
    /// It has started all of its work: [`finish`](crate::Engine::finish) gives the result. This is
    /// its last payload.
    Done(Vec<u8>),
    /// A member has no such backend: all members use messages. An engine may return this only for a
    /// reason that all members have received alike.
    FallBack,
}
