//! What is recorded while instructions are planned: how a value got its layout, what moved for it, what a session has
//! moved. `describe` tells of it; nothing is decided by it.

use crate::cost::{LinkCost, real};
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
/// nothing, `reduced` reduced partial values, `gathered` gathered cut ones, `fetched` took from other workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrafficStats {
    moved_bytes: u64,
    transfers: u64,
    all_reduces: u64,
    reduce_scatters: u64,
    all_gathers: u64,
    all_to_alls: u64,
    kept: u64,
    reduced: u64,
    gathered: u64,
    fetched: u64,
}

impl TrafficStats {
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

    pub fn count(&mut self, traffic: Traffic, bytes: u64) {
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
    pub fn since(&self, before: &Self) -> TrafficDelta {
        TrafficDelta {
            bytes: self.moved_bytes - before.moved_bytes,
            transfers: self.transfers - before.transfers,
            reductions: self.all_reduces + self.reduce_scatters
                - before.all_reduces
                - before.reduce_scatters,
            gathers: self.all_gathers + self.all_to_alls - before.all_gathers - before.all_to_alls,
        }
    }

    /// Counts an instruction that moved `delta` on its way over several workers.
    pub fn classify(&mut self, delta: TrafficDelta) {
        *match delta {
            TrafficDelta { gathers: 1.., .. } => &mut self.gathered,
            TrafficDelta { reductions: 1.., .. } => &mut self.reduced,
            TrafficDelta { transfers: 1.., .. } => &mut self.fetched,
            TrafficDelta { .. } => &mut self.kept,
        } += 1;
    }
}

/// What one instruction moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrafficDelta {
    pub bytes: u64,
    transfers: u64,
    reductions: u64,
    gathers: u64,
}

impl TrafficDelta {
    /// Microseconds by the prices that the planner reckons with, over the slowest link there.
    pub fn cost(self, link: LinkCost) -> f64 {
        let messages = real(self.transfers + 2 * self.reductions + self.gathers);
        messages * link.message + real(self.bytes) * link.byte
    }

    /// `: 1 reduced, 2 sent`; nothing where nothing moved.
    pub fn exchanges(self) -> String {
        let exchanges =
            [(self.reductions, "reduced"), (self.gathers, "gathered"), (self.transfers, "sent")];
        let words: SmallVec<[String; 3]> = exchanges
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) }
    }
}

/// What decided on a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decider {
    /// The client asked for this layout.
    Request,
    /// It was uploaded as others from the same line were needed.
    UploadHistory,
    /// The scope of its signal says the layout of what is created.
    Scope,
    /// The cheapest strategy on its operands' mesh.
    Strategy,
}

/// How a value got its layout, as long as it keeps the one that it was made with.
#[derive(Clone, Debug)]
pub(crate) struct Provenance {
    pub op: Op,
    pub signal: u16,
    pub decider: Decider,
    pub traffic: TrafficDelta,
    /// Numbers of operands with their layouts.
    pub operands: SmallVec<[(u64, Layout); 2]>,
    pub changes: LayoutChanges,
}

/// An operand that had another layout than the plan needed.
#[derive(Clone, Debug)]
pub(crate) struct LayoutChange {
    pub number: u64,
    pub from: Layout,
    pub to: Layout,
}

pub(crate) type LayoutChanges = SmallVec<[LayoutChange; 1]>;

/// Why a value has another layout than it was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LayoutCause {
    #[default]
    AsMade,
    /// The scope of this signal, or of the one that it was created in, cuts it.
    Scope(Option<u16>),
    /// The instruction of this number needed it so, and the next one may again.
    Instruction(u64),
    /// A client has sent it without a layout: none but the session's home was known.
    Unknown,
}
