//! Elementwise kernels.

use super::functions::{exponential, inverse_root, logarithm, root};
use super::{KernelArg, KernelError, broadcast, is_float, promoted};
use crate::arithmetic::tensor::{PRIME, ToyTensor, element_of, inverse, larger, signed, smaller};
use gt_protocol::Dtype;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryKernel {
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
pub enum UnaryKernel {
    Neg,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Square,
    Isnan,
    Isinf,
}

fn zip(
    args: &[KernelArg<'_>],
    dtype: Dtype,
    element: impl Fn(&[u64]) -> u64,
) -> Result<ToyTensor, KernelError> {
    let shapes: Vec<&[usize]> =
        args.iter().filter_map(|arg| arg.optional()).map(|tensor| tensor.dims.as_slice()).collect();
    let dims = broadcast(&shapes)?;
    let mut elements = vec![0; args.len()];
    Ok(ToyTensor::from_fn(&dims, dtype, |index| {
        for (place, arg) in elements.iter_mut().zip(args) {
            *place = match arg {
                KernelArg::Absent => 0,
                KernelArg::Scalar(scalar) => element_of(*scalar),
                KernelArg::ToyTensor(tensor) => tensor.at(index),
            };
        }
        element(&elements)
    }))
}

pub fn binary(kind: BinaryKernel, args: &[KernelArg<'_>]) -> Result<ToyTensor, KernelError> {
    let common = promoted(args);
    let dtype = match kind {
        BinaryKernel::Add
        | BinaryKernel::Sub
        | BinaryKernel::Mul
        | BinaryKernel::Maximum
        | BinaryKernel::Minimum => common,
        BinaryKernel::Div if is_float(common) => common,
        BinaryKernel::Div => Dtype::F32,
        BinaryKernel::Lt | BinaryKernel::Eq | BinaryKernel::LogicalOr => Dtype::Bool,
    };
    zip(args, dtype, |elements| {
        let (a, b) = (elements[0], elements[1]);
        match kind {
            BinaryKernel::Add => a + b,
            BinaryKernel::Sub => a + PRIME - b,
            BinaryKernel::Mul => a * b,
            BinaryKernel::Div => a * inverse(b),
            BinaryKernel::Lt => u64::from(signed(a) < signed(b)),
            BinaryKernel::Eq => u64::from(a == b),
            BinaryKernel::Maximum => larger(a, b),
            BinaryKernel::Minimum => smaller(a, b),
            BinaryKernel::LogicalOr => u64::from(a != 0 || b != 0),
        }
    })
}

pub fn unary(kind: UnaryKernel, args: &[KernelArg<'_>]) -> Result<ToyTensor, KernelError> {
    let own = args[0].tensor()?.dtype;
    if own == Dtype::Bool && kind == UnaryKernel::Neg {
        return Err(KernelError::Form("the negative of a bool"));
    }
    let dtype = match kind {
        UnaryKernel::Square if own == Dtype::Bool => Dtype::I64,
        UnaryKernel::Neg | UnaryKernel::Square => own,
        UnaryKernel::Exp | UnaryKernel::Log | UnaryKernel::Sqrt | UnaryKernel::Rsqrt
            if is_float(own) =>
        {
            own
        }
        UnaryKernel::Exp | UnaryKernel::Log | UnaryKernel::Sqrt | UnaryKernel::Rsqrt => Dtype::F32,
        UnaryKernel::Isnan | UnaryKernel::Isinf => Dtype::Bool,
    };
    zip(args, dtype, |elements| {
        let a = elements[0];
        match kind {
            UnaryKernel::Neg => PRIME - a,
            UnaryKernel::Exp => exponential(a),
            UnaryKernel::Log => logarithm(a),
            UnaryKernel::Sqrt => root(a),
            UnaryKernel::Rsqrt => inverse_root(a),
            UnaryKernel::Square => a * a,
            // Every element of the field is a finite number.
            UnaryKernel::Isnan | UnaryKernel::Isinf => 0,
        }
    })
}

pub fn masked_fill(args: &[KernelArg<'_>]) -> Result<ToyTensor, KernelError> {
    if args[1].tensor()?.dtype != Dtype::Bool {
        return Err(KernelError::Form("the mask is no bool"));
    }
    let dtype = args[0].tensor()?.dtype;
    zip(args, dtype, |elements| elements[if elements[1] == 1 { 2 } else { 0 }])
}

pub fn cast(args: &[KernelArg<'_>], dtype: Dtype) -> Result<ToyTensor, KernelError> {
    zip(args, dtype, |elements| elements[0])
}

pub fn select(args: &[KernelArg<'_>]) -> Result<ToyTensor, KernelError> {
    if args[0].tensor()?.dtype != Dtype::Bool {
        return Err(KernelError::Form("the condition is no bool"));
    }
    zip(args, promoted(&args[1..]), |elements| elements[if elements[0] == 1 { 1 } else { 2 }])
}

/// The operand shifted by numbers that depend on the operands' values at each position, as in a
/// fused update.
pub fn sgd(args: &[KernelArg<'_>]) -> Result<Vec<ToyTensor>, KernelError> {
    let (param, grad) = (args[0].tensor()?, args[1].tensor()?);
    let buffer = args[2].optional();
    let others = [Some(grad), buffer];
    if others.iter().flatten().any(|other| other.dims != param.dims || other.dtype != param.dtype)
        || !is_float(param.dtype)
    {
        return Err(KernelError::Form("an update of unlike tensors"));
    }
    let buffer = zip(&[args[1], args[2]], param.dtype, |elements| elements[0] + 2 * elements[1])?;
    let stepped = zip(&[args[0], KernelArg::ToyTensor(&buffer)], param.dtype, |elements| {
        elements[0] + PRIME * 3 - 3 * elements[1]
    })?;
    Ok(vec![stepped, buffer])
}

/// Outputs: the parameter, both moments, and the largest second moment so far.
pub fn adamw(args: &[KernelArg<'_>]) -> Result<Vec<ToyTensor>, KernelError> {
    let param = args[0].tensor()?;
    let states = args.iter().filter_map(|arg| arg.optional());
    let mut unlike = states.filter(|state| state.dims != param.dims || state.dtype != param.dtype);
    if unlike.next().is_some() || !is_float(param.dtype) {
        return Err(KernelError::Form("an update of unlike tensors"));
    }
    let first = zip(&args[1..3], param.dtype, |elements| 3 * elements[0] + 2 * elements[1])?;
    let second = zip(&[args[1], args[3]], param.dtype, |elements| {
        elements[0] * elements[0] + 5 * elements[1]
    })?;
    let largest = zip(&[args[4], KernelArg::ToyTensor(&second)], param.dtype, |elements| {
        larger(elements[0], elements[1])
    })?;
    let operands = [args[0], KernelArg::ToyTensor(&first), KernelArg::ToyTensor(&largest)];
    let stepped = zip(&operands, param.dtype, |elements| {
        elements[0] + PRIME - elements[1] * inverse_root(elements[2]) % PRIME
    })?;
    Ok(vec![stepped, first, second, largest])
}

pub fn mse(args: &[KernelArg<'_>]) -> Result<ToyTensor, KernelError> {
    let dtype = promoted(args);
    if !is_float(dtype) {
        return Err(KernelError::Form("a loss of whole numbers"));
    }
    zip(args, dtype, |elements| {
        let distance = elements[0] + PRIME - elements[1];
        distance % PRIME * (distance % PRIME)
    })
}

pub fn mse_backward(args: &[KernelArg<'_>], divisor: u64) -> Result<ToyTensor, KernelError> {
    let dtype = args[1].tensor()?.dtype;
    let scale = inverse(divisor) * 2 % PRIME;
    zip(args, dtype, |elements| {
        let distance = (elements[1] + PRIME - elements[2]) % PRIME;
        elements[0] * distance % PRIME * scale
    })
}
