//! Meaning of a client's program: its instructions executed at once, in order, on whole tensors.
//!
//! Nothing here knows of workers, placements or slots, and nothing of the rules or the planner may
//! be used.

use crate::arithmetic::compute::Compute;
use crate::arithmetic::kernels::{KernelArg, KernelError};
use crate::arithmetic::tensor::{ToyTensor, wide};
use gt_protocol::{Id, Op, Scalar};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// An operand of a step; values are named by number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepOperand {
    Absent,
    Value(Id),
    Scalar(Scalar),
}

/// One line of a client's program.
#[derive(Clone, Debug)]
pub enum ProgramStep {
    Compute {
        compute: Compute,
        terms: Vec<StepOperand>,
        consumes: u16,
    },
    Upload {
        tensor: ToyTensor,
        ranges: usize,
    },
    Distribute {
        source: Id,
        target: DistributeTarget,
    },
    /// Gives a signal a meaning.
    Configure {
        signal: u16,
        text: String,
    },
    /// Sets the signal that the following instructions carry.
    Enter(u16),
    Free(Vec<Id>),
    Read {
        value: Id,
        start: u64,
        count: u64,
    },
    Synchronize,
    Stats,
    /// Moves the session's values to the workers that are there.
    Rebalance,
}

/// The requested layout of a value.
#[derive(Clone, Debug)]
pub enum DistributeTarget {
    /// Sharded along this dimension over all workers, or replicated.
    Dim(Option<i64>),
    /// The layout in this text.
    Layout(String),
}

/// Expected result of an instruction.
#[derive(Clone, Debug)]
pub enum Expectation {
    Value(Rc<ToyTensor>),
    /// Numbers of the instructions that may be its first cause, and a tensor of its shape if that
    /// is known.
    Failed {
        causes: BTreeSet<u64>,
        shape: Option<Rc<ToyTensor>>,
        /// False if the result needs none of the failed operands, and the planner computes it
        /// separately.
        certain: bool,
    },
}

/// Place at which an instruction's own failure is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    Dispatcher,
    Worker,
    /// Uncertain: another worker's shard of an operand fails too.
    Perhaps,
}

/// Results of a step, before it is decided to take it.
pub struct Evaluated {
    pub outcomes: Vec<Expectation>,
    pub root: Option<Root>,
}

#[derive(Debug, Default)]
pub struct Oracle {
    next_number: u64,
    values: BTreeMap<Id, Expectation>,
    roots: BTreeMap<u64, Root>,
}

impl Oracle {
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Instructions with a failure of their own.
    pub fn roots(&self) -> &BTreeMap<u64, Root> {
        &self.roots
    }

    pub fn outcome(&self, id: Id) -> Option<&Expectation> {
        self.values.get(&id)
    }

    /// A tensor of the value's shape; the value itself if it has not failed.
    pub fn shape(&self, id: Id) -> Option<&Rc<ToyTensor>> {
        match self.values.get(&id)? {
            Expectation::Value(tensor) => Some(tensor),
            Expectation::Failed { shape, .. } => shape.as_ref(),
        }
    }

    /// Takes a step; returns the names of its results.
    pub fn commit(&mut self, evaluated: Evaluated) -> Vec<Id> {
        let number = self.next_number;
        self.next_number += 1;
        if let Some(root) = evaluated.root {
            self.roots.insert(number, root);
        }
        let ids = (0..).map(|output| Id::number(number, output));
        let named: Vec<(Id, Expectation)> = ids.zip(evaluated.outcomes).collect();
        let ids = named.iter().map(|(id, _)| *id).collect();
        self.values.extend(named);
        ids
    }

    /// Removes a value from those that the program can name; its number stays.
    pub fn forget(&mut self, id: Id) {
        self.values.remove(&id);
    }

    pub fn copy_of(&self, source: Id) -> Evaluated {
        let outcomes = self.values.get(&source).cloned().into_iter().collect();
        Evaluated { outcomes, root: None }
    }

    pub fn value(tensor: ToyTensor) -> Evaluated {
        Evaluated { outcomes: vec![Expectation::Value(Rc::new(tensor))], root: None }
    }

    pub fn evaluate(&self, compute: &Compute, terms: &[StepOperand]) -> Evaluated {
        let own = self.next_number;
        let outputs = usize::from(compute.op.info().outputs);
        let mut causes = BTreeSet::new();
        let mut known = true;
        for term in terms {
            if let StepOperand::Value(id) = term
                && let Some(Expectation::Failed { causes: earlier, shape, .. }) =
                    self.values.get(id)
            {
                causes.extend(earlier);
                known &= shape.is_some();
            }
        }
        let failed = |causes: &BTreeSet<u64>, shapes: Vec<ToyTensor>| {
            let mut shapes = shapes.into_iter().map(Rc::new);
            let failed = |output| {
                let shape = shapes.next();
                // A result without elements contains nothing of a failed shard.
                let empty =
                    shape.as_ref().is_some_and(|tensor: &Rc<ToyTensor>| tensor.data.is_empty());
                let needs = !empty && self.needs_failed(compute, terms, output);
                let certain = causes.contains(&own) || needs;
                Expectation::Failed { causes: causes.clone(), shape, certain }
            };
            (0..outputs).map(failed).collect()
        };
        if !known {
            return Evaluated { outcomes: failed(&causes, Vec::new()), root: None };
        }
        let inherited = !causes.is_empty();
        let args = self.args(terms);
        match compute.run(&args) {
            Ok(tensors) if !inherited => {
                let outcomes =
                    tensors.into_iter().map(|tensor| Expectation::Value(Rc::new(tensor)));
                Evaluated { outcomes: outcomes.collect(), root: None }
            }
            Ok(tensors) => Evaluated { outcomes: failed(&causes, tensors), root: None },
            Err(KernelError::Form(_) | KernelError::Unknown) => {
                causes.insert(own);
                let root = if inherited { Root::Perhaps } else { Root::Dispatcher };
                Evaluated { outcomes: failed(&causes, Vec::new()), root: Some(root) }
            }
            Err(KernelError::Data(_)) => {
                causes.insert(own);
                let shapes = shapes_with_good_indices(compute, &args);
                let root = if inherited { Root::Perhaps } else { Root::Worker };
                Evaluated { outcomes: failed(&causes, shapes), root: Some(root) }
            }
        }
    }

    /// Returns true if this output needs the operands that have failed.
    fn needs_failed(&self, compute: &Compute, terms: &[StepOperand], output: usize) -> bool {
        let needed = match (compute.op, output) {
            // Mean and deviation, and the gradients of weight and bias.
            (Op::LayerNorm, 1 | 2) | (Op::LayerNormBackward, 2) | (Op::RmsNorm, 1) => 1,
            (Op::LayerNormBackward, 1) => 4,
            (Op::RmsNormBackward, 1) => 3,
            // The total weight: without a reduction it is zero. A view's shard may contain nothing
            // that failed.
            (Op::NllLoss, 1) | (Op::Slice | Op::Select | Op::Diagonal, _) => 0,
            _ => terms.len(),
        };
        terms.iter().take(needed).any(|term| {
            let StepOperand::Value(id) = term else { return false };
            matches!(self.values.get(id), Some(Expectation::Failed { certain: true, .. }))
        })
    }

    fn args(&self, terms: &[StepOperand]) -> Vec<KernelArg<'_>> {
        let arg = |term: &StepOperand| match term {
            StepOperand::Absent => KernelArg::Absent,
            StepOperand::Scalar(scalar) => KernelArg::Scalar(*scalar),
            StepOperand::Value(id) => {
                self.shape(*id).map_or(KernelArg::Absent, |tensor| KernelArg::ToyTensor(tensor))
            }
        };
        terms.iter().map(arg).collect()
    }
}

/// The results' shapes, which do not depend on the indices, the integer operand.
fn shapes_with_good_indices(compute: &Compute, args: &[KernelArg<'_>]) -> Vec<ToyTensor> {
    let place = if compute.op == Op::NllLossBackward { 2 } else { 1 };
    let Some(indices) = args.get(place).and_then(|arg| arg.optional()) else { return Vec::new() };
    let zeros = ToyTensor::from_fn(&indices.dims, indices.dtype, |_| 0);
    let mut args = args.to_vec();
    args[place] = KernelArg::ToyTensor(&zeros);
    compute.run(&args).unwrap_or_else(|error| panic!("{:?} of index 0: {error:?}", compute.op))
}

/// Number of elements of a value, as a read counts them.
pub fn count(tensor: &ToyTensor) -> u64 {
    wide(tensor.data.len()).cast_unsigned()
}
