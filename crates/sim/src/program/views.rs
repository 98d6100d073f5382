//! Steps that move elements: views, joins, look-ups and writes by tables.

use super::{DrawnStep, Scene, StepOrOperand, either, list, upload};
use crate::arithmetic::tensor::{ToyTensor, wide};
use crate::exact::exact;
use gt_protocol::{Attr, Dtype, Id, Op};

impl Scene<'_> {
    pub(super) fn view(&mut self) -> Option<DrawnStep> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let (rank, dim) = (shape.rank(), self.dim(shape.rank()));
        let sizes: Vec<i64> = shape.dims.iter().map(|&size| wide(size)).collect();
        let (op, attrs) = match self.random.below(15) {
            0 | 1 => (Op::Reshape, vec![list(&self.other_shape(&sizes))]),
            2 => {
                let mut dims: Vec<i64> = (0..wide(rank)).collect();
                let turn = self.random.index(rank);
                dims.rotate_left(turn);
                (Op::Permute, vec![list(&dims)])
            }
            3 => (Op::Expand, vec![list(&self.stretched(&sizes))]),
            4 | 5 => (Op::Slice, self.bounds(dim)),
            6 => (Op::Select, [dim, wide(self.random.index(3)) - 1].map(Attr::Int).to_vec()),
            7 => (Op::Flip, vec![list(&[dim])]),
            8 => (Op::Pad, self.padding(rank)),
            9 => {
                let repeats: Vec<i64> = (0..rank).map(|_| 1 + wide(self.random.index(2))).collect();
                (Op::Repeat, vec![list(&repeats)])
            }
            10 => {
                let offset = wide(self.random.index(3)) - 1;
                let other = self.dim(rank);
                (Op::Diagonal, [offset, dim, other].map(Attr::Int).to_vec())
            }
            11 => return Some(either(self.overwritten(a, &shape, dim))),
            12 => {
                let op = *self.random.pick(&[Op::Tril, Op::Triu])?;
                (op, vec![Attr::Int(wide(self.random.index(5)) - 2)])
            }
            13 => return Some(either(self.joined(a, &shape.dims, shape.dtype, true))),
            _ => return Some(either(self.joined(a, &shape.dims, shape.dtype, false))),
        };
        Some(self.call(op, attrs, [a]))
    }

    fn bounds(&mut self, dim: i64) -> Vec<Attr> {
        let size = wide(self.random.index(8));
        let start = wide(self.random.index(4)) - 1;
        let step = 1 + wide(self.random.index(2));
        [dim, start, start.max(0) + size, step].map(Attr::Int).to_vec()
    }

    /// Padding of the last dimensions, one or more.
    fn padding(&mut self, rank: usize) -> Vec<Attr> {
        let count = 2 * (self.random.index(rank) + 1).min(rank);
        let pairs: Vec<i64> = (0..count).map(|_| wide(self.random.index(3))).collect();
        vec![list(&pairs), Attr::Float(f64::from(u8::from(self.random.percent(50))))]
    }

    /// A value that is overwritten where a slice, or an index, reads.
    fn overwritten(&mut self, a: Id, shape: &ToyTensor, dim: i64) -> StepOrOperand {
        let slice = self.random.percent(60);
        let (read, write, attrs) = if slice {
            (Op::Slice, Op::SliceScatter, self.bounds(dim))
        } else {
            let index = wide(self.random.index(3)) - 1;
            (Op::Select, Op::SelectScatter, [dim, index].map(Attr::Int).to_vec())
        };
        // A step that does not fit is drawn again.
        let part = self.shape_of(read, &attrs, a);
        let source = self.like(part.as_deref().unwrap_or(&shape.dims), shape.dtype)?;
        Ok(self.call(write, attrs, [a, source]))
    }

    fn joined(&mut self, a: Id, dims: &[usize], dtype: Dtype, cat: bool) -> StepOrOperand {
        let count = 1 + self.random.index(2);
        let mut ids = vec![a];
        for _ in 0..count {
            ids.push(self.like(dims, dtype)?);
        }
        let dim = self.dim(dims.len() + usize::from(!cat));
        let op = if cat { Op::Cat } else { Op::Stack };
        Ok(self.call(op, [Attr::Int(dim)], ids))
    }

    fn other_shape(&mut self, sizes: &[i64]) -> Vec<i64> {
        let count: i64 = sizes.iter().product();
        match self.random.below(4) {
            0 => vec![count],
            1 if !sizes.is_empty() && count > 0 => {
                let mut target = sizes.to_vec();
                target[self.random.index(sizes.len())] = -1;
                target
            }
            2 if sizes.len() > 2 => {
                let mut target = sizes.to_vec();
                let last = target.pop().expect("more than two sizes");
                if let Some(place) = target.last_mut() {
                    *place *= last;
                }
                target
            }
            _ => {
                let mut target = sizes.to_vec();
                target.insert(self.random.index(sizes.len() + 1), 1);
                target
            }
        }
    }

    fn stretched(&mut self, sizes: &[i64]) -> Vec<i64> {
        let mut target: Vec<i64> = sizes.to_vec();
        for size in &mut target {
            if *size == 1 {
                *size = wide(self.size());
            } else if self.random.percent(20) {
                *size = -1;
            }
        }
        if self.random.percent(50) {
            target.insert(0, wide(self.size()));
        }
        target
    }

    pub(super) fn look_up(&mut self) -> Option<DrawnStep> {
        let a = self.any()?;
        let shape = self.oracle.shape(a)?.clone();
        let rank = shape.rank();
        if rank == 0 {
            return None;
        }
        let place = self.random.index(rank);
        let dim = || [Attr::Int(wide(place))];
        Some(either(match self.random.below(8) {
            0 | 1 if rank == 2 => {
                let depth = 1 + self.random.index(2);
                self.indexed(Op::Embedding, vec![Attr::Absent], a, shape.dims[0], depth)
            }
            2 if rank == 2 => {
                let rows = self.size();
                let attrs = [Attr::Int(wide(rows)), Attr::Absent];
                let indices = self.indices(rows, &shape.dims[..1]);
                indices.map(|indices| self.call(Op::EmbeddingBackward, attrs, [a, indices]))
            }
            3 => self.table(&shape, place).map(|index| self.call(Op::Gather, dim(), [a, index])),
            4 => self.scattered(Op::ScatterAdd, a, &shape, place),
            5 => self.scattered(Op::Scatter, a, &shape, place),
            6 => self.added(a, &shape, place),
            _ => self.indexed(Op::IndexSelect, dim().to_vec(), a, shape.dims[place], 1),
        }))
    }

    fn indexed(
        &mut self,
        op: Op,
        attrs: Vec<Attr>,
        table: Id,
        rows: usize,
        rank: usize,
    ) -> StepOrOperand {
        let dims: Vec<usize> = (0..rank).map(|_| self.size()).collect();
        let indices = self.indices(rows, &dims)?;
        Ok(self.call(op, attrs, [table, indices]))
    }

    /// Indices along one dimension, for each element of a shape that differs in that dimension
    /// only.
    fn table(&mut self, shape: &ToyTensor, place: usize) -> Result<Id, DrawnStep> {
        let mut dims = shape.dims.clone();
        if self.random.percent(50) {
            dims[place] = self.size();
        }
        self.indices(shape.dims[place], &dims)
    }

    fn scattered(&mut self, op: Op, a: Id, shape: &ToyTensor, place: usize) -> StepOrOperand {
        let index = self.table(shape, place)?;
        let dims = self.oracle.shape(index).expect("a table is live").dims.clone();
        let source = self.like(&dims, shape.dtype)?;
        Ok(self.call(op, [Attr::Int(wide(place))], [a, index, source]))
    }

    fn added(&mut self, a: Id, shape: &ToyTensor, place: usize) -> StepOrOperand {
        let count = self.size();
        let index = self.indices(shape.dims[place], &[count])?;
        let mut dims = shape.dims.clone();
        dims[place] = count;
        let source = self.like(&dims, shape.dtype)?;
        Ok(self.call(Op::IndexAdd, [Attr::Int(wide(place))], [a, index, source]))
    }

    /// A value of integers below `limit`.
    pub(super) fn indices(&mut self, limit: usize, dims: &[usize]) -> Result<Id, DrawnStep> {
        let good = |tensor: &ToyTensor| {
            tensor
                .data
                .iter()
                .all(|&element| usize::try_from(element).is_ok_and(|element| element < limit))
        };
        let candidates: Vec<Id> = self
            .live
            .iter()
            .copied()
            .filter(|&id| {
                self.oracle.shape(id).is_some_and(|tensor| {
                    tensor.dtype == Dtype::I64 && tensor.dims == dims && good(tensor)
                })
            })
            .collect();
        if let Some(&id) = self.random.pick(&candidates) {
            return Ok(id);
        }
        let limit = exact::<_, u64>(limit);
        let tensor = ToyTensor::from_fn(dims, Dtype::I64, |_| self.random.below(limit));
        Err(upload(tensor, 1))
    }
}
