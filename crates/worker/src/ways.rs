//! How a collective goes where its bytes do not pass through the workers' own messages: what a machine asks of an engine
//! that moves them itself, from device to device or by a process group.
//!
//! Such a collective is a talk: its members say a few words to each other, round by round, and each engine does with what
//! the others have said what it will. The machine knows when a round is over, who has failed, and whose memory is lent; the
//! words are the engines'. Nothing here waits for a device.

use crate::{Fault, ReduceOp};
use gt_protocol::{Attr, Dtype, Instruction};
use smallvec::SmallVec;

/// Longest word: handles, addresses, offsets.
pub const WORD_BYTES_MAX: usize = 4096;

/// Which way, in the order of the choice of a collective's `way`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the memory of one device to another's, on one host.
    Device,
    /// By a process group.
    Group,
}

impl Way {
    /// The way that an instruction names; none where it goes by bytes.
    pub fn of(instruction: &Instruction<'_>) -> Result<Option<Self>, Fault> {
        let way = instruction.attr("way");
        for (index, known) in (0..).zip([Self::Device, Self::Group]) {
            if *way == Attr::Choice(index) {
                return Ok(Some(known));
            }
        }
        if *way == Attr::Absent {
            return Ok(None);
        }
        Err(Fault::protocol(format!("the way {way:?}")))
    }

    /// The word of it in a trace, and the name under which a backend has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Group => "group",
        }
    }
}

/// A collective as an engine gets it.
#[derive(Clone, Copy, Debug)]
pub struct Meeting<'a> {
    pub way: Way,
    /// Its operator and attributes.
    pub instruction: &'a Instruction<'a>,
    /// The same at all members, and no other collective's.
    pub tag: u64,
    /// In the group's order; of a `send` and its `receive` each has itself first.
    pub members: &'a [u32],
    /// Which of them we are.
    pub me: usize,
}

/// Rows of bytes at equal distances in a value's contiguous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedRange {
    pub start: usize,
    pub rows: usize,
    /// Bytes of a row, and from one row's start to the next's.
    pub run: usize,
    pub stride: usize,
}

impl StridedRange {
    pub const fn bytes(&self) -> usize {
        self.rows.saturating_mul(self.run)
    }
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
pub struct Reducing {
    pub reduce_op: ReduceOp,
    /// A stretch of each member's operand, in the group's order; our own among them.
    pub shards: SmallVec<[StridedRange; 8]>,
    pub to: StridedRange,
}

/// All that a member does by reading other members' memory: reduce first, then pull.
#[derive(Clone, Debug)]
pub struct Work {
    pub dtype: Dtype,
    /// From our operand to our result.
    pub kept: Option<(StridedRange, StridedRange)>,
    pub folding: Option<Reducing>,
    pub pulls: SmallVec<[Pull; 8]>,
    /// Others read our result too, as soon as it is reduced.
    pub shares_result: bool,
}

/// What an engine makes of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It says this in one more round, and does the rest when that is over.
    Say(Vec<u8>),
    /// All is under way that it has to do: the result can be had by [`land`](crate::Engine::land). This is its last word.
    Done(Vec<u8>),
    /// Somebody cannot go this way: all go by bytes. An engine says so only of what all members have heard alike.
    Bytes,
}
