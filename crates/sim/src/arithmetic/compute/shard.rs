//! Look-ups and writes where a worker has only a shard of the indexed tensor: the shard is put into
//! a whole of zeros, and the operation is done on that.

use super::{Compute, KernelError, KernelResults};
use crate::arithmetic::kernels::{KernelArg, sizes_of, wrap};
use crate::arithmetic::tensor::{ToyTensor, narrow, wide};
use gt_protocol::{Attr, Op};

/// Start of a shard in a dimension, and the dimension's size.
#[derive(Clone, Copy)]
struct ShardRange {
    start: usize,
    total: usize,
}

impl Compute {
    /// The results on a shard, if the attributes say that this is one.
    pub(super) fn run_on_shard(&self, args: &[KernelArg<'_>]) -> Option<KernelResults> {
        let info = self.op.info();
        let [start, total] = ["start", "total"].map(|name| info.attr_index(name));
        let at = |place: Option<usize>| {
            let Attr::Int(value) = self.attrs.get(place?)? else { return None };
            Some(*value)
        };
        let sizes = match sizes_of(&[at(start)?, at(total)?]) {
            Ok(sizes) => sizes,
            Err(error) => return Some(Err(error)),
        };
        let range = ShardRange { start: sizes[0], total: sizes[1] };
        let mut whole = self.clone();
        for place in [start, total].into_iter().flatten() {
            whole.attrs[place] = Attr::Absent;
        }
        Some(whole.on_the_whole(args, range))
    }

    fn on_the_whole(mut self, args: &[KernelArg<'_>], range: ShardRange) -> KernelResults {
        if self.op == Op::EmbeddingBackward {
            let Some(Attr::Int(rows)) = self.attrs.first().cloned() else {
                return Err(KernelError::Unknown);
            };
            self.attrs[0] = Attr::Int(wide(range.total));
            let results = self.run(args)?;
            return Ok(results.iter().map(|table| part(table, 0, range, narrow(rows))).collect());
        }
        // Position of the scores among a loss's operands; the weights follow two positions behind.
        let scores =
            [(Op::NllLoss, 0), (Op::NllLossBackward, 1)].iter().find(|row| row.0 == self.op);
        let scores = scores.map(|row| row.1);
        let (position, dim) = match (scores, self.attrs.first()) {
            (Some(position), _) => (position, 1),
            (None, _) if self.op == Op::Embedding => (0, 0),
            (None, Some(Attr::Int(dim))) => (0, wrap(*dim, args[0].tensor()?.rank())?),
            (None, _) => return Err(KernelError::Unknown),
        };
        let shard = args[position].tensor()?;
        // A client may write the attributes of a shard for an operand without dimensions.
        let Some(&size) = shard.dims.get(dim) else { return Err(KernelError::Unknown) };
        let padded = put(shard, dim, range);
        // Classes of other shards have no weight here.
        let ones = ToyTensor::from_fn(&[size], shard.dtype, |_| 1);
        let weights = |arg: &KernelArg<'_>| put(arg.optional().unwrap_or(&ones), 0, range);
        let weight = scores.map(|place| (place + 2, weights(&args[place + 2])));
        let mut args = args.to_vec();
        args[position] = KernelArg::ToyTensor(&padded);
        if let Some((place, weight)) = &weight {
            args[*place] = KernelArg::ToyTensor(weight);
        }
        let results = self.run(&args)?;
        let looked_up =
            matches!(self.op, Op::Embedding | Op::Gather | Op::IndexSelect | Op::NllLoss);
        if looked_up {
            return Ok(results);
        }
        Ok(results.iter().map(|result| part(result, dim, range, size)).collect())
    }
}

/// Zeros of the whole with the shard in its place. A tensor that is whole is reduced to the shard.
fn put(tensor: &ToyTensor, dim: usize, range: ShardRange) -> ToyTensor {
    let mut dims = tensor.dims.clone();
    let size = dims[dim];
    dims[dim] = range.total;
    ToyTensor::from_fn(&dims, tensor.dtype, |index| {
        let place = index[dim].wrapping_sub(range.start);
        if place >= size {
            return 0;
        }
        let mut source = index.to_vec();
        source[dim] = place;
        tensor.at(&source)
    })
}

fn part(tensor: &ToyTensor, dim: usize, range: ShardRange, size: usize) -> ToyTensor {
    let mut dims = tensor.dims.clone();
    dims[dim] = size;
    ToyTensor::from_fn(&dims, tensor.dtype, |index| {
        let mut source = index.to_vec();
        source[dim] += range.start;
        tensor.at(&source)
    })
}
