//! What is noted while instructions are planned: how a value came to lie so, what moved for it, what a session has moved.
//! `explain` tells of it.

use crate::prices::{Link, real};
use gt_protocol::Op;
use gt_protocol::placement::Layout;
use smallvec::SmallVec;

/// What is counted apart of what travels between workers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Traffic {
    Transfer,
    AllReduce,
    ReduceScatter,
    AllGather,
    AllToAll,
}

/// What a session's instructions moved between workers. Of the instructions that ran on several workers, `kept` moved
/// nothing, `reduced` folded partial values, `gathered` brought cut ones together, `fetched` took from other workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Motion {
    pub moved_bytes: u64,
    pub transfers: u64,
    pub all_reduces: u64,
    pub reduce_scatters: u64,
    pub all_gathers: u64,
    pub all_to_alls: u64,
    pub kept: u64,
    pub reduced: u64,
    pub gathered: u64,
    pub fetched: u64,
}

impl Motion {
    /// The counters with their names.
    pub fn counters(&self) -> [(&'static str, u64); 10] {
        [
            ("moved_bytes", self.moved_bytes),
            ("transfers", self.transfers),
            ("all_reduces", self.all_reduces),
            ("reduce_scatters", self.reduce_scatters),
            ("all_gathers", self.all_gathers),
            ("all_to_alls", self.all_to_alls),
            ("kept", self.kept),
            ("reduced", self.reduced),
            ("gathered", self.gathered),
            ("fetched", self.fetched),
        ]
    }

    pub(crate) fn count(&mut self, traffic: Traffic, bytes: u64) {
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        *match traffic {
            Traffic::Transfer => &mut self.transfers,
            Traffic::AllReduce => &mut self.all_reduces,
            Traffic::ReduceScatter => &mut self.reduce_scatters,
            Traffic::AllGather => &mut self.all_gathers,
            Traffic::AllToAll => &mut self.all_to_alls,
        } += 1;
    }

    /// What was moved since `before`.
    pub(crate) fn since(&self, before: &Self) -> Moves {
        Moves {
            bytes: self.moved_bytes - before.moved_bytes,
            transfers: self.transfers - before.transfers,
            folds: self.all_reduces + self.reduce_scatters
                - before.all_reduces
                - before.reduce_scatters,
            gathers: self.all_gathers + self.all_to_alls - before.all_gathers - before.all_to_alls,
        }
    }

    /// Enters an instruction that moved `moves` on its way over several workers.
    pub(crate) fn classify(&mut self, moves: Moves) {
        *match moves {
            Moves { gathers: 1.., .. } => &mut self.gathered,
            Moves { folds: 1.., .. } => &mut self.reduced,
            Moves { transfers: 1.., .. } => &mut self.fetched,
            Moves { .. } => &mut self.kept,
        } += 1;
    }
}

/// What one instruction moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moves {
    pub bytes: u64,
    pub transfers: u64,
    pub folds: u64,
    pub gathers: u64,
}

/// Which part of the planner decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The client asked for this layout.
    Asked,
    /// It was uploaded as others from the same line were needed.
    Habit,
    /// The scope of its signal says how what is created lies.
    Scope,
    /// The cheapest way on its operands' mesh.
    Spread,
}

/// How a value came to lie so, as long as it lies as it was made.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub op: Op,
    pub signal: u16,
    pub why: Why,
    pub moves: Moves,
    /// Operands with the layouts that they had before.
    pub operands: SmallVec<[(u64, Layout); 2]>,
    pub brought: BroughtList,
}

impl Note {
    /// The operator's code and the signal.
    pub fn made_by(&self) -> (u16, u16) {
        (self.op.info().code, self.signal)
    }
}

/// An operand's number, how it lay, and how it was needed.
pub(crate) type BroughtList = SmallVec<[(u64, Layout, Layout); 2]>;

/// Why a value lies otherwise than it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Laid {
    #[default]
    AsMade,
    /// The scope of this signal, or of the one that it was created in, cuts it.
    Scope(Option<u16>),
    /// The instruction of this number needed it so, and the next one may again.
    For(u64),
    /// A client has sent it without saying how it is to lie.
    Sent,
}

impl Moves {
    /// Microseconds by the prices that the planner reckons with, over the slowest link there.
    pub(crate) fn cost(self, link: Link) -> f64 {
        let messages = real(self.transfers + 2 * self.folds + self.gathers);
        messages * link.message + real(self.bytes) * link.byte
    }

    /// `: 1 reduced, 2 sent`; nothing where nothing moved.
    pub(crate) fn ways(self) -> String {
        let ways = [(self.folds, "folded"), (self.gathers, "gathered"), (self.transfers, "sent")];
        let words: SmallVec<[String; 3]> = ways
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) }
    }
}
