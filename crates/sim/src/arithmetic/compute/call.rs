//! Attributes and operands of one call, by their position.

use crate::arithmetic::kernels::draw::DrawnBox;
use crate::arithmetic::kernels::index::LossReduction;
use crate::arithmetic::kernels::{KernelArg, KernelError, sizes_of};
use crate::arithmetic::tensor::ToyTensor;
use gt_protocol::{Attr, Dtype, Op, Scalar};

pub struct KernelCall<'a> {
    pub op: Op,
    pub attrs: &'a [Attr],
    pub args: &'a [KernelArg<'a>],
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "an attribute has the requested kind, or no toy kernel takes it"
)]
impl<'a> KernelCall<'a> {
    pub fn tensor(&self, place: usize) -> Result<&'a ToyTensor, KernelError> {
        self.args.get(place).copied().unwrap_or(KernelArg::Absent).tensor()
    }

    fn attr(&self, place: usize) -> &'a Attr {
        self.attrs.get(place).unwrap_or(&Attr::Absent)
    }

    fn named(&self, name: &str) -> &'a Attr {
        self.op.info().attr_index(name).map_or(&Attr::Absent, |place| self.attr(place))
    }

    pub fn int(&self, place: usize) -> Result<i64, KernelError> {
        self.optional_int(place)?.ok_or(KernelError::Unknown)
    }

    pub fn optional_int(&self, place: usize) -> Result<Option<i64>, KernelError> {
        match self.attr(place) {
            Attr::Int(value) => Ok(Some(*value)),
            Attr::Absent => Ok(None),
            _ => Err(KernelError::Unknown),
        }
    }

    pub fn named_int(&self, name: &str) -> Result<i64, KernelError> {
        match self.named(name) {
            Attr::Int(value) => Ok(*value),
            _ => Err(KernelError::Unknown),
        }
    }

    pub fn four(&self) -> Result<[i64; 4], KernelError> {
        Ok([self.int(0)?, self.int(1)?, self.int(2)?, self.int(3)?])
    }

    pub fn flag(&self, place: usize) -> Result<bool, KernelError> {
        match self.attr(place) {
            Attr::Bool(value) => Ok(*value),
            _ => Err(KernelError::Unknown),
        }
    }

    pub fn float(&self, place: usize) -> Result<f64, KernelError> {
        match self.attr(place) {
            Attr::Float(value) => Ok(*value),
            _ => Err(KernelError::Unknown),
        }
    }

    /// A float, which the simulator only writes without a fraction.
    #[allow(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        reason = "a small whole number"
    )]
    pub fn whole(&self, place: usize) -> Result<i64, KernelError> {
        Ok(self.float(place)? as i64)
    }

    pub fn scalar(&self, place: usize) -> Result<Scalar, KernelError> {
        match self.attr(place) {
            Attr::Scalar(value) => Ok(*value),
            _ => Err(KernelError::Unknown),
        }
    }

    pub fn dtype(&self, place: usize) -> Result<Dtype, KernelError> {
        match self.attr(place) {
            Attr::Dtype(value) => Ok(*value),
            _ => Err(KernelError::Unknown),
        }
    }

    pub fn ints(&self, place: usize) -> Result<Vec<i64>, KernelError> {
        self.optional_ints(place)?.ok_or(KernelError::Unknown)
    }

    pub fn optional_ints(&self, place: usize) -> Result<Option<Vec<i64>>, KernelError> {
        match self.attr(place) {
            Attr::Ints(values) => Ok(Some(values.to_vec())),
            Attr::Absent => Ok(None),
            _ => Err(KernelError::Unknown),
        }
    }

    pub fn sizes(&self, place: usize) -> Result<Vec<usize>, KernelError> {
        sizes_of(&self.ints(place)?)
    }

    pub fn reduction(&self) -> Result<LossReduction, KernelError> {
        let words = [LossReduction::None, LossReduction::Mean, LossReduction::Sum];
        match self.attr(0) {
            Attr::Choice(word) => {
                words.get(usize::from(*word)).copied().ok_or(KernelError::Unknown)
            }
            _ => Err(KernelError::Unknown),
        }
    }

    /// Box of the numbers to draw: all of `size` (of the operand), or the box of it that `global`
    /// and `start` describe.
    pub fn drawn_box(&self) -> Result<DrawnBox, KernelError> {
        let dims = match self.named("size") {
            Attr::Ints(sizes) => sizes_of(sizes)?,
            _ => self.tensor(0)?.dims.clone(),
        };
        let (whole, start) = match (self.named("global"), self.named("start")) {
            (Attr::Ints(whole), Attr::Ints(start)) => (sizes_of(whole)?, sizes_of(start)?),
            (Attr::Absent, Attr::Absent) => (dims.clone(), vec![0; dims.len()]),
            _ => return Err(KernelError::Unknown),
        };
        let inside = |dim: usize| start[dim] + dims[dim] <= whole[dim];
        if whole.len() != dims.len() || start.len() != dims.len() || !(0..dims.len()).all(inside) {
            return Err(KernelError::Form("a box outside of its tensor"));
        }
        Ok(DrawnBox { dims, whole, start })
    }
}
