//! Element by element.

use super::functions::{exponential, inverse_root, logarithm, root};
use super::{Arg, Refusal, broadcast, is_float, promoted};
use crate::arithmetic::tensor::{PRIME, Tensor, element_of, inverse};
use gt_protocol::Dtype;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Lt,
    Eq,
    Maximum,
    Minimum,
    LogicalOr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    Neg,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Square,
    Isnan,
    Isinf,
}

fn zip(args: &[Arg<'_>], dtype: Dtype, element: impl Fn(&[u64]) -> u64) -> Result<Tensor, Refusal> {
    let shapes: Vec<&[usize]> =
        args.iter().filter_map(|arg| arg.optional()).map(|tensor| tensor.dims.as_slice()).collect();
    let dims = broadcast(&shapes)?;
    let mut elements = vec![0; args.len()];
    Ok(Tensor::from_fn(&dims, dtype, |index| {
        for (place, arg) in elements.iter_mut().zip(args) {
            *place = match arg {
                Arg::Absent => 0,
                Arg::Scalar(scalar) => element_of(*scalar),
                Arg::Tensor(tensor) => tensor.at(index),
            };
        }
        element(&elements)
    }))
}

pub fn binary(kind: Binary, args: &[Arg<'_>]) -> Result<Tensor, Refusal> {
    let common = promoted(args);
    let dtype = match kind {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Maximum | Binary::Minimum => common,
        Binary::Div if is_float(common) => common,
        Binary::Div => Dtype::F32,
        Binary::Lt | Binary::Eq | Binary::LogicalOr => Dtype::Bool,
    };
    zip(args, dtype, |elements| {
        let (a, b) = (elements[0], elements[1]);
        match kind {
            Binary::Add => a + b,
            Binary::Sub => a + PRIME - b,
            Binary::Mul => a * b,
            Binary::Div => a * inverse(b),
            Binary::Lt => u64::from(a < b),
            Binary::Eq => u64::from(a == b),
            Binary::Maximum => a.max(b),
            Binary::Minimum => a.min(b),
            Binary::LogicalOr => u64::from(a != 0 || b != 0),
        }
    })
}

pub fn unary(kind: Unary, args: &[Arg<'_>]) -> Result<Tensor, Refusal> {
    let own = args[0].tensor()?.dtype;
    if own == Dtype::Bool && kind == Unary::Neg {
        return Err(Refusal::Form("the negative of a bool"));
    }
    let dtype = match kind {
        Unary::Square if own == Dtype::Bool => Dtype::I64,
        Unary::Neg | Unary::Square => own,
        Unary::Exp | Unary::Log | Unary::Sqrt | Unary::Rsqrt if is_float(own) => own,
        Unary::Exp | Unary::Log | Unary::Sqrt | Unary::Rsqrt => Dtype::F32,
        Unary::Isnan | Unary::Isinf => Dtype::Bool,
    };
    zip(args, dtype, |elements| {
        let a = elements[0];
        match kind {
            Unary::Neg => PRIME - a,
            Unary::Exp => exponential(a),
            Unary::Log => logarithm(a),
            Unary::Sqrt => root(a),
            Unary::Rsqrt => inverse_root(a),
            Unary::Square => a * a,
            // Every element of the field is a number.
            Unary::Isnan | Unary::Isinf => 0,
        }
    })
}

pub fn masked_fill(args: &[Arg<'_>]) -> Result<Tensor, Refusal> {
    if args[1].tensor()?.dtype != Dtype::Bool {
        return Err(Refusal::Form("the mask is no bool"));
    }
    let dtype = args[0].tensor()?.dtype;
    zip(args, dtype, |elements| elements[if elements[1] == 1 { 2 } else { 0 }])
}

pub fn scenario(args: &[Arg<'_>], dtype: Dtype) -> Result<Tensor, Refusal> {
    zip(args, dtype, |elements| elements[0])
}

pub fn select(args: &[Arg<'_>]) -> Result<Tensor, Refusal> {
    if args[0].tensor()?.dtype != Dtype::Bool {
        return Err(Refusal::Form("the condition is no bool"));
    }
    zip(args, promoted(&args[1..]), |elements| elements[if elements[0] == 1 { 1 } else { 2 }])
}

/// The operand shifted by numbers that hang on the place of the whole value: what a fused update does to its operands.
pub fn sgd(args: &[Arg<'_>]) -> Result<Vec<Tensor>, Refusal> {
    let (param, grad) = (args[0].tensor()?, args[1].tensor()?);
    let buffer = args[2].optional();
    let others = [Some(grad), buffer];
    if others.iter().flatten().any(|other| other.dims != param.dims || other.dtype != param.dtype)
        || !is_float(param.dtype)
    {
        return Err(Refusal::Form("an update of unlike tensors"));
    }
    let buffer = zip(&[args[1], args[2]], param.dtype, |elements| elements[0] + 2 * elements[1])?;
    let stepped = zip(&[args[0], Arg::Tensor(&buffer)], param.dtype, |elements| {
        elements[0] + PRIME * 3 - 3 * elements[1]
    })?;
    Ok(vec![stepped, buffer])
}

/// Outputs: the parameter, both moments, and the largest second moment so far.
pub fn adamw(args: &[Arg<'_>]) -> Result<Vec<Tensor>, Refusal> {
    let param = args[0].tensor()?;
    let states = args.iter().filter_map(|arg| arg.optional());
    let mut unlike = states.filter(|state| state.dims != param.dims || state.dtype != param.dtype);
    if unlike.next().is_some() || !is_float(param.dtype) {
        return Err(Refusal::Form("an update of unlike tensors"));
    }
    let first = zip(&args[1..3], param.dtype, |elements| 3 * elements[0] + 2 * elements[1])?;
    let second = zip(&[args[1], args[3]], param.dtype, |elements| {
        elements[0] * elements[0] + 5 * elements[1]
    })?;
    let largest = zip(&[args[4], Arg::Tensor(&second)], param.dtype, |elements| {
        elements[0].max(elements[1])
    })?;
    let operands = [args[0], Arg::Tensor(&first), Arg::Tensor(&largest)];
    let stepped = zip(&operands, param.dtype, |elements| {
        elements[0] + PRIME - elements[1] * inverse_root(elements[2]) % PRIME
    })?;
    Ok(vec![stepped, first, second, largest])
}

pub fn mse(args: &[Arg<'_>]) -> Result<Tensor, Refusal> {
    let dtype = promoted(args);
    if !is_float(dtype) {
        return Err(Refusal::Form("a loss of whole numbers"));
    }
    zip(args, dtype, |elements| {
        let distance = elements[0] + PRIME - elements[1];
        distance % PRIME * (distance % PRIME)
    })
}

pub fn mse_backward(args: &[Arg<'_>], divisor: u64) -> Result<Tensor, Refusal> {
    let dtype = args[1].tensor()?.dtype;
    let scale = inverse(divisor) * 2 % PRIME;
    zip(args, dtype, |elements| {
        let distance = (elements[1] + PRIME - elements[2]) % PRIME;
        elements[0] * distance % PRIME * scale
    })
}
