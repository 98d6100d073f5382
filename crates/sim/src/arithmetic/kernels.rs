//! Toy kernels of the operators, in plain loops, with shape arithmetic of their own.
//!
//! The oracle runs these on whole values and the toy workers on the shards they are sent. Nothing of the rules, the
//! planner or the sharding may be used here: the oracle would repeat their mistakes.

pub mod draw;
pub mod elementwise;
mod functions;
pub mod index;
pub mod normalize;
pub mod product;
pub mod reduce;
pub mod scatter;
pub mod view;

use crate::arithmetic::tensor::{ToyTensor, wide};
use gt_protocol::{Dtype, Scalar};

/// Reason why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelError {
    /// Shapes or dtypes do not fit: known before anything runs.
    Form(&'static str),
    /// Elements do not fit: known only when the kernel runs.
    Data(String),
    /// There is no toy kernel for it.
    Unknown,
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub enum KernelArg<'a> {
    Absent,
    Scalar(Scalar),
    ToyTensor(&'a ToyTensor),
}

impl<'a> KernelArg<'a> {
    pub fn tensor(self) -> Result<&'a ToyTensor, KernelError> {
        match self {
            Self::ToyTensor(tensor) => Ok(tensor),
            Self::Absent | Self::Scalar(_) => Err(KernelError::Form("a tensor is missing")),
        }
    }

    pub fn optional(self) -> Option<&'a ToyTensor> {
        match self {
            Self::ToyTensor(tensor) => Some(tensor),
            Self::Absent | Self::Scalar(_) => None,
        }
    }
}

/// The sizes in an attribute, which a client may have made up.
pub fn sizes_of(sizes: &[i64]) -> Result<Vec<usize>, KernelError> {
    let sizes: Result<Vec<usize>, _> = sizes.iter().map(|&size| usize::try_from(size)).collect();
    sizes.map_err(|_| KernelError::Form("a size below 0"))
}

/// A dimension counted from the front; a scalar has one.
pub fn wrap(dim: i64, rank: usize) -> Result<usize, KernelError> {
    let range = wide(rank.max(1));
    let wrapped = if dim < 0 { dim + range } else { dim };
    match usize::try_from(wrapped) {
        Ok(place) if wrapped < range => Ok(place),
        Ok(_) | Err(_) => Err(KernelError::Form("no such dimension")),
    }
}

/// The shape that all of these broadcast to.
pub fn broadcast(shapes: &[&[usize]]) -> Result<Vec<usize>, KernelError> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![1; rank];
    for shape in shapes {
        for (place, &size) in result.iter_mut().rev().zip(shape.iter().rev()) {
            match (*place, size) {
                (_, 1) => {}
                (1, _) => *place = size,
                (a, b) if a == b => {}
                (_, _) => return Err(KernelError::Form("shapes do not broadcast to each other")),
            }
        }
    }
    Ok(result)
}

pub fn is_float(dtype: Dtype) -> bool {
    dtype == Dtype::F32 || dtype == Dtype::F64
}

/// The dtype of a result: the widest among tensors with dimensions; other operands count if their
/// category is higher.
pub fn promoted(args: &[KernelArg<'_>]) -> Dtype {
    let mut classes: [Option<Dtype>; 3] = [None; 3];
    for arg in args {
        let (class, dtype) = match arg {
            KernelArg::Absent => continue,
            KernelArg::ToyTensor(tensor) => (usize::from(tensor.rank() == 0), tensor.dtype),
            KernelArg::Scalar(Scalar::Bool(_)) => (2, Dtype::Bool),
            KernelArg::Scalar(Scalar::Int(_)) => (2, Dtype::I64),
            KernelArg::Scalar(Scalar::Float(_)) => (2, Dtype::F32),
        };
        classes[class] = Some(classes[class].map_or(dtype, |before| before.max(dtype)));
    }
    let [tensors, points, scalars] = classes;
    outweigh(tensors, outweigh(points, scalars)).unwrap_or(Dtype::F32)
}

fn outweigh(first: Option<Dtype>, second: Option<Dtype>) -> Option<Dtype> {
    let (Some(a), Some(b)) = (first, second) else { return first.or(second) };
    Some(if kind(b) > kind(a) { a.max(b) } else { a })
}

fn kind(dtype: Dtype) -> u8 {
    u8::from(dtype != Dtype::Bool) + u8::from(is_float(dtype))
}

/// Promotion within one category takes the maximum of dtypes, which is right for those that the
/// simulator uses: their order is this one.
pub const DTYPES: [Dtype; 4] = [Dtype::I32, Dtype::I64, Dtype::F32, Dtype::F64];
