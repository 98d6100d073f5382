//! Records for explanations: the provenance of a value's layout, the traffic for it, and a
//! session's traffic. `describe` prints them; no decision depends on them.

use crate::cost::{LinkCost, real};
use gt_protocol::Op;
use gt_protocol::placement::Layout;
use smallvec::SmallVec;

/// Kinds of traffic between workers that are counted separately.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Traffic {
    Transfer,
    AllReduce,
    ReduceScatter,
    AllGather,
    AllToAll,
}

/// Traffic of a session's instructions between workers. Of the instructions that ran on several
/// workers, `kept` moved nothing, `reduced` reduced partial values, `gathered` gathered sharded
/// ones, `fetched` fetched from other workers.
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

    /// Traffic since `before`.
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

    /// Counts an instruction over several workers by its traffic `delta`.
    pub fn classify(&mut self, delta: TrafficDelta) {
        *match delta {
            TrafficDelta { gathers: 1.., .. } => &mut self.gathered,
            TrafficDelta { reductions: 1.., .. } => &mut self.reduced,
            TrafficDelta { transfers: 1.., .. } => &mut self.fetched,
            TrafficDelta { .. } => &mut self.kept,
        } += 1;
    }
}

/// Traffic of one instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrafficDelta {
    pub bytes: u64,
    transfers: u64,
    reductions: u64,
    gathers: u64,
}

impl TrafficDelta {
    /// Microseconds by the planner's cost model, over the slowest link in use.
    pub fn cost(self, link: LinkCost) -> f64 {
        let messages = real(self.transfers + 2 * self.reductions + self.gathers);
        messages * link.message + real(self.bytes) * link.byte
    }

    /// `: 1 reduced, 2 sent`; empty if nothing moved.
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

/// Decider of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decider {
    /// The client asked for this layout; over all workers, if it named none.
    Request(Option<OverAll>),
    /// It arrived in the layout that others from the same line were needed in.
    UploadHistory,
    /// The scope of its signal sets the layout of created values.
    Scope,
    /// The cheapest strategy on its operands' mesh.
    Strategy,
}

/// Layout over all workers that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverAll {
    Replicated,
    Sharded(usize),
}

/// Origin of a value's layout, valid as long as the value keeps its original layout.
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

/// An operand whose layout differed from the one that the plan needed.
#[derive(Clone, Debug)]
pub(crate) struct LayoutChange {
    pub number: u64,
    pub from: Layout,
    pub to: Layout,
}

pub(crate) type LayoutChanges = SmallVec<[LayoutChange; 1]>;

/// Reason why a value's layout is not its original one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LayoutCause {
    #[default]
    AsMade,
    /// The scope of this signal, or of the one in which it was created, shards it.
    Scope(Option<u16>),
    /// The instruction of this number needed the layout, and the next one may too.
    Instruction(u64),
    /// A client has sent it without a layout, when nothing but the session's home was known.
    Unknown,
    /// The client asked for its values to go to the workers that are there.
    Rebalanced,
}
