//! What the members of one line of a mesh do together.

use super::Mover;
use crate::handle::Slots;
use crate::note::Traffic;
use crate::planted;
use gt_protocol::placement::{Fold, Interval, Pieces};
use gt_protocol::{Attr, Id, Meta, Op, Operand};
use smallvec::SmallVec;

/// Workers of a line with their slots, in the line's order.
pub(crate) type Line = SmallVec<[(u32, u32); 8]>;

impl Mover<'_> {
    /// The fold of all members' values, on each.
    pub fn all_reduce(&mut self, line: &Line, fold: Fold, meta: Meta) -> Slots {
        if planted::DROPPED_FOLD {
            return line.iter().map(|&(worker, slot)| self.alias(worker, slot, meta)).collect();
        }
        let tag = Attr::Int(self.core.take_tag());
        let attrs = [group(line), Attr::Choice(fold.choice()), tag];
        // A ring's worth: each member sends and receives twice all but its own share.
        self.count(line, Traffic::AllReduce, meta.bytes().saturating_mul(2));
        self.together(line, Op::AllReduce, &attrs)
    }

    /// The fold of all members' values, one piece of dimension `dim` on each.
    pub fn reduce_scatter(
        &mut self,
        line: &Line,
        fold: Fold,
        dim: usize,
        pieces: &Pieces,
        meta: Meta,
    ) -> Slots {
        let tag = Attr::Int(self.core.take_tag());
        let attrs = [group(line), Attr::Choice(fold.choice()), dim_attr(dim), sizes(pieces), tag];
        self.count(line, Traffic::ReduceScatter, meta.bytes());
        self.together(line, Op::ReduceScatter, &attrs)
    }

    /// All members' pieces of dimension `dim` one after the other, on each. `meta` is the result's.
    pub fn all_gather(&mut self, line: &Line, dim: usize, pieces: &Pieces, meta: Meta) -> Slots {
        let tag = Attr::Int(self.core.take_tag());
        let (mut members, mut lengths) = (group(line), sizes(pieces));
        if planted::GATHER_ORDER {
            for list in [&mut members, &mut lengths] {
                if let Attr::List(list) = list {
                    list.reverse();
                }
            }
        }
        self.count(line, Traffic::AllGather, meta.bytes());
        self.together(line, Op::AllGather, &[members, dim_attr(dim), lengths, tag])
    }

    /// Pieces of dimension `from` become pieces of dimension `to`. `whole` is the value's.
    pub fn all_to_all(
        &mut self,
        line: &Line,
        (from, held): (usize, &Pieces),
        (to, wanted): (usize, &Pieces),
        whole: Meta,
    ) -> Slots {
        let tag = Attr::Int(self.core.take_tag());
        let attrs = [group(line), dim_attr(from), sizes(held), dim_attr(to), sizes(wanted), tag];
        let bytes = whole.bytes().saturating_sub(stay((from, held), (to, wanted), whole));
        self.core.count_moved(self.session, Traffic::AllToAll, bytes);
        self.together(line, Op::AllToAll, &attrs)
    }

    fn together(&mut self, line: &Line, op: Op, attrs: &[Attr]) -> Slots {
        let members: SmallVec<[u32; 8]> = line.iter().map(|&(worker, _)| worker).collect();
        let way = self.core.way(&members);
        line.iter()
            .map(|&(worker, slot)| {
                let result = self.core.take_slot(worker);
                let mut word = self.core.word(op);
                word.outputs.push(Id::slot(result));
                word.operands.push(Operand::Value(Id::slot(slot)));
                word.attrs = attrs.iter().chain([&way]).cloned().collect();
                self.send(worker, &word);
                result
            })
            .collect()
    }

    /// All members of a line together move the bytes of all but one share.
    pub(super) fn count(&mut self, line: &Line, traffic: Traffic, bytes: u64) {
        let others = u64::try_from(line.len()).unwrap_or(1).saturating_sub(1);
        self.core.count_moved(self.session, traffic, bytes.saturating_mul(others));
    }
}

/// How many bytes of a value whose pieces are exchanged stay where they are.
fn stay((from, held): (usize, &Pieces), (to, wanted): (usize, &Pieces), whole: Meta) -> u64 {
    let size = |dim: usize| whole.dims.get(dim).copied().unwrap_or(0).max(1);
    let both = |(have, want): (&[Interval], &[Interval])| -> i64 {
        let meet = |one: &Interval| {
            want.iter().filter_map(|other| one.meet(*other)).map(Interval::len).sum::<i64>()
        };
        have.iter().map(meet).sum()
    };
    let elements = whole.elements();
    let kept: i64 = if from == to {
        held.iter().zip(wanted.iter()).map(both).sum::<i64>() * (elements / size(from))
    } else {
        let each = elements / size(from) / size(to);
        held.sizes().zip(wanted.sizes()).map(|(have, want)| have * want * each).sum()
    };
    u64::try_from(kept).unwrap_or(0).saturating_mul(whole.dtype.size())
}

pub(super) fn group(line: &Line) -> Attr {
    Attr::List(line.iter().map(|&(worker, _)| i64::from(worker)).collect())
}

fn sizes(pieces: &Pieces) -> Attr {
    Attr::List(pieces.sizes().collect())
}

fn dim_attr(dim: usize) -> Attr {
    Attr::Int(i64::try_from(dim).unwrap_or(0))
}
