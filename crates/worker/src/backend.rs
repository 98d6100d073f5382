//! How a collective goes where its bytes do not pass through the workers' own messages: what a machine asks of an engine
//! whose backend moves them itself, from device to device or by a process group.
//!
//! The members of such a collective meet in a rendezvous: round by round each sends a payload to the others, and each
//! backend does with what it receives what it will. The machine knows when a round is over, who has failed, and whose memory
//! is borrowed; the payloads are the backends'. Nothing here waits for a device.

use crate::failure::Fault;
use crate::strided_range::StridedRange;
use gt_protocol::placement::ReduceOp;
use gt_protocol::{Attr, Dtype, Instruction};
use smallvec::SmallVec;

/// Which backend, in the order of the choice of a collective's `backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// From the memory of one device to another's, on one host.
    Device,
    /// By a process group.
    Group,
}

impl Backend {
    /// The backend that an instruction names; none where it goes by the workers' messages.
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

    /// The word of it in a trace, and the name under which a worker's kernels have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Group => "group",
        }
    }
}

/// A collective as a backend gets it.
#[derive(Clone, Copy, Debug)]
pub struct Collective<'a> {
    pub backend: Backend,
    /// Its operator and attributes.
    pub instruction: &'a Instruction<'a>,
    /// The same at all members, and no other collective's.
    pub tag: u64,
    /// In the group's order; of a `send` and its `receive` each has itself first.
    pub members: &'a [u32],
    /// Which of them we are.
    pub me: usize,
}

/// What of another member's memory is copied to where in our result.
#[derive(Clone, Copy, Debug)]
pub struct Pull {
    /// The member's place in the group.
    pub place: usize,
    /// From its result, once that is reduced, instead of its operand.
    pub of_result: bool,
    pub from: StridedRange,
    pub to: StridedRange,
}

/// What is reduced to where in our result.
#[derive(Clone, Debug)]
pub struct ReadReduction {
    pub reduce_op: ReduceOp,
    /// A range of each member's operand, in the group's order; our own among them.
    pub shards: SmallVec<[StridedRange; 8]>,
    pub to: StridedRange,
}

/// All that a member does by reading other members' memory: reduce first, then pull.
#[derive(Clone, Debug)]
pub struct DirectReads {
    pub dtype: Dtype,
    /// From our operand to our result.
    pub kept: Option<(StridedRange, StridedRange)>,
    pub reduction: Option<ReadReduction>,
    pub pulls: SmallVec<[Pull; 8]>,
    /// Others read our result too, as soon as it is reduced.
    pub shares_result: bool,
}

/// What a backend makes of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It sends this in one more round, and does the rest when that is over.
    Continue(Vec<u8>),
    /// All is begun that it has to do: the result can be had by [`finish`](crate::Engine::finish). This is its last payload.
    Done(Vec<u8>),
    /// Somebody has no such backend: all go by messages. An engine says so only of what all members have received alike.
    FallBack,
}
