//! Collectives among the members of one line of a mesh.

use crate::number::{signed, wide};
use crate::planner::Planner;
use crate::session::provenance::Traffic;
use crate::session::value::Slots;
use crate::workers::MeshLine;
use gt_protocol::placement::{Interval, ReduceOp, ShardRanges};
use gt_protocol::{Attr, Id, Meta, Op, Operand};
use smallvec::SmallVec;

impl Planner<'_> {
    /// Reduces all members' values; each member gets the result.
    pub fn all_reduce(&mut self, line: &MeshLine, op: ReduceOp, meta: Meta) -> Slots {
        let tag = self.take_tag();
        let attrs = [group(line), Attr::Choice(op.choice()), tag];
        // Counted as for a ring: each member sends and receives twice the bytes without its own
        // share.
        self.count(line, Traffic::AllReduce, meta.bytes().saturating_mul(2));
        self.exchange_on(line, Op::AllReduce, &attrs)
    }

    /// Reduces all members' values; each member gets one shard of dimension `dim`.
    pub fn reduce_scatter(
        &mut self,
        line: &MeshLine,
        op: ReduceOp,
        dim: usize,
        ranges: &ShardRanges,
        meta: Meta,
    ) -> Slots {
        let tag = self.take_tag();
        let attrs = [group(line), Attr::Choice(op.choice()), dim_attr(dim), sizes(ranges), tag];
        self.count(line, Traffic::ReduceScatter, meta.bytes());
        self.exchange_on(line, Op::ReduceScatter, &attrs)
    }

    /// Concatenates all members' shards of dimension `dim` on each member. `meta` is the result's.
    pub fn all_gather(
        &mut self,
        line: &MeshLine,
        dim: usize,
        ranges: &ShardRanges,
        meta: Meta,
    ) -> Slots {
        let tag = self.take_tag();
        let attrs = [group(line), dim_attr(dim), sizes(ranges), tag];
        self.count(line, Traffic::AllGather, meta.bytes());
        self.exchange_on(line, Op::AllGather, &attrs)
    }

    /// Exchanges shards of dimension `from` for shards of dimension `to`. `whole` is the value's
    /// metadata.
    pub fn all_to_all(
        &mut self,
        line: &MeshLine,
        (from, current): (usize, &ShardRanges),
        (to, target): (usize, &ShardRanges),
        whole: Meta,
    ) -> Slots {
        let tag = self.take_tag();
        let attrs = [group(line), dim_attr(from), sizes(current), dim_attr(to), sizes(target), tag];
        let bytes = whole.bytes().saturating_sub(bytes_kept((from, current), (to, target), whole));
        self.count_moved(Traffic::AllToAll, bytes);
        self.exchange_on(line, Op::AllToAll, &attrs)
    }

    fn exchange_on(&mut self, line: &MeshLine, op: Op, attrs: &[Attr]) -> Slots {
        let members: SmallVec<[u32; 8]> = line.iter().map(|&(worker, _)| worker).collect();
        let backend = self.core.workers.backend(&members);
        line.iter()
            .map(|&(worker, slot)| {
                let result = self.take_slot(worker);
                let mut word = self.word(op);
                word.outputs.push(Id::slot(result));
                word.operands.push(Operand::Value(Id::slot(slot)));
                word.attrs = attrs.iter().chain([&backend]).cloned().collect();
                self.send(worker, &word);
                result
            })
            .collect()
    }

    /// Counts the bytes that the members of a line move together: all but one share.
    pub(super) fn count(&mut self, line: &MeshLine, traffic: Traffic, bytes: u64) {
        let others = wide(line.len()) - 1;
        self.count_moved(traffic, bytes.saturating_mul(others));
    }
}

/// Number of bytes that stay in place when shards are exchanged.
fn bytes_kept(
    (from, current): (usize, &ShardRanges),
    (to, target): (usize, &ShardRanges),
    whole: Meta,
) -> u64 {
    let size = |dim: usize| whole.dims[dim].max(1);
    let both = |(have, want): (&[Interval], &[Interval])| -> i64 {
        let meet = |one: &Interval| {
            want.iter().filter_map(|other| one.meet(*other)).map(Interval::len).sum::<i64>()
        };
        have.iter().map(meet).sum()
    };
    let elements = whole.elements();
    let unmoved: i64 = if from == to {
        current.iter().zip(target.iter()).map(both).sum::<i64>() * (elements / size(from))
    } else {
        let each = elements / size(from) / size(to);
        current.sizes().zip(target.sizes()).map(|(have, want)| have * want * each).sum()
    };
    u64::try_from(unmoved).expect("a count of elements").saturating_mul(whole.dtype.size())
}

pub(super) fn group(line: &MeshLine) -> Attr {
    Attr::List(line.iter().map(|&(worker, _)| i64::from(worker)).collect())
}

fn sizes(ranges: &ShardRanges) -> Attr {
    Attr::List(ranges.sizes().collect())
}

fn dim_attr(dim: usize) -> Attr {
    Attr::Int(signed(dim))
}
