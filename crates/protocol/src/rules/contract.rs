//! Products summed over an index. The shape follows from the row's index equation; only the
//! messages depend on the kernel of `PyTorch` that would have refused.

use super::call::Call;
use super::equation::Equation;
use super::error::RuleError;
use super::outputs::{Inferred, one};
use super::shape;
use crate::{Dims, Dtype, Meta};

/// Reason why two operands do not contract.
enum Mismatch {
    /// Their batch dimensions do not broadcast.
    Batch(RuleError),
    /// The sizes of the summed index differ.
    Contracted,
}

/// The shape that an index equation gives for its factors.
fn contract(equation: &str, a: &Dims, b: &Dims) -> Result<Dims, Mismatch> {
    let equation = Equation::new(equation, [Some(a), Some(b)]);
    let [Some(first), Some(second)] = equation.terms.as_slice() else {
        return Err(Mismatch::Contracted);
    };
    // A batch that does not broadcast is reported first: PyTorch broadcasts before it multiplies.
    let mut result = shape::broadcast(&first.batch(), &second.batch()).map_err(Mismatch::Batch)?;
    let differs = |letter: u8| {
        let sizes = first.size_of(letter).zip(second.size_of(letter));
        sizes.is_some_and(|(size, other)| size != other)
    };
    if first.held().any(differs) {
        return Err(Mismatch::Contracted);
    }
    for letter in equation.output {
        if let Some(size) = first.size_of(*letter).or(second.size_of(*letter))
            && !result.push(size)
        {
            return Err(Mismatch::Batch(shape::too_many_dims()));
        }
    }
    Ok(result)
}

pub(super) fn matmul(call: &Call<'_>) -> Inferred {
    let [a, b] = call.tensors()?;
    let kernel = Kernel::of(&a.dims, &b.dims);
    check_ranks("matmul", a, b)?;
    if kernel == Kernel::Dot {
        check_product_dtype(kernel, a, b)?;
    }
    let dims = contract(call.info.index, &a.dims, &b.dims).map_err(|mismatch| match mismatch {
        Mismatch::Batch(error) => error,
        Mismatch::Contracted => kernel.mismatch("mm", &a.dims, &b.dims),
    })?;
    check_product_dtype(kernel, a, b)?;
    kernel.check_bool(a.dtype)?;
    one(Meta::new(a.dtype, dims))
}

fn check_ranks(name: &str, a: &Meta, b: &Meta) -> Result<(), RuleError> {
    if !a.dims.is_empty() && !b.dims.is_empty() {
        return Ok(());
    }
    Err(RuleError::shape(format!(
        "both arguments to {name} need to be at least 1D, but they are {}D and {}D",
        a.dims.len(),
        b.dims.len()
    )))
}

fn check_product_dtype(kernel: Kernel, a: &Meta, b: &Meta) -> Result<(), RuleError> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    let (first, second) = (a.dtype.scalar_type_name(), b.dtype.scalar_type_name());
    Err(match kernel {
        Kernel::Dot => RuleError::dtype(format!(
            "dot : expected both vectors to have same dtype, but found {first} and {second}"
        )),
        Kernel::MatrixVector => RuleError::dtype(format!(
            "addmv input tensors must have the same dtype, but got {second}, {first}, and {second}"
        )),
        Kernel::Matrix => RuleError::dtype(format!(
            "expected m1 and m2 to have the same dtype, but got: {} != {}",
            a.dtype.cpp_name(),
            b.dtype.cpp_name()
        )),
        Kernel::Batched => RuleError::mixed(a.dtype, b.dtype),
    })
}

/// Kernel of `PyTorch` for operands of these ranks; it matters for messages only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    Dot,
    MatrixVector,
    Matrix,
    Batched,
}

impl Kernel {
    fn of(a: &Dims, b: &Dims) -> Self {
        match (a.len(), b.len()) {
            (0 | 1, 0 | 1) => Self::Dot,
            (_, 0 | 1) => Self::MatrixVector,
            (_, 2) => Self::Matrix,
            _ => Self::Batched,
        }
    }

    /// The message where the sizes of the summed index differ; `b` as the kernel sees it, transposed for `linear`.
    fn mismatch(self, product: &str, a: &Dims, b: &Dims) -> RuleError {
        let (columns, rows) = (size_before_end(a, 0), shape::product(before_end(a, 1)));
        let (inner, outer) = (size_before_end(b, 1), size_before_end(b, 0));
        RuleError::shape(match self {
            Self::Dot => format!(
                "inconsistent tensor size, expected tensor {a} and src {b} to have the same number of elements, but \
                 got {columns} and {outer} elements respectively"
            ),
            Self::MatrixVector => {
                format!("size mismatch, got input ({rows}), mat ({rows}x{columns}), vec ({outer})")
            }
            Self::Matrix => format!(
                "{product}: mat1 and mat2 shapes cannot be multiplied ({rows}x{columns} and {inner}x{outer})"
            ),
            Self::Batched => {
                let [a, b] = [a, b].map(|dims| shape::part(before_end(dims, 2)));
                let batch = shape::broadcast(&a, &b).map_or(0, |dims| shape::product(&dims));
                format!(
                    "Expected size for first two dimensions of batch2 tensor to be: [{batch}, {columns}] but got: \
                     [{batch}, {inner}]."
                )
            }
        })
    }

    fn check_bool(self, dtype: Dtype) -> Result<(), RuleError> {
        if dtype != Dtype::Bool {
            return Ok(());
        }
        let name = match self {
            Self::Dot => "dot",
            Self::MatrixVector => "addmv_impl_cpu",
            Self::Matrix => "addmm_impl_cpu_",
            Self::Batched => "bmm",
        };
        Err(RuleError::kernel(name, dtype))
    }
}

fn before_end(dims: &Dims, count: usize) -> &[i64] {
    dims.get(..dims.len().saturating_sub(count)).unwrap_or_default()
}

fn size_before_end(dims: &Dims, count: usize) -> i64 {
    before_end(dims, count).last().copied().unwrap_or(1)
}

pub(super) fn linear(call: &Call<'_>) -> Inferred {
    let [input, weight] = call.tensors()?;
    let bias = call.optional_tensor(2)?;
    check_ranks("linear", input, weight)?;
    if weight.dims.len() > 2 {
        return Err(RuleError::shape(format!(
            "t() expects a tensor with <= 2 dimensions, but self is {}D",
            weight.dims.len()
        )));
    }
    let vector = weight.dims.len() == 1;
    if vector && bias.is_some_and(|bias| !(input.dims.len() == 1 && bias.dims.is_empty())) {
        return Err(RuleError::shape("addmm: mat2 must be a matrix, got 1-D tensor"));
    }
    if let Some(bias) = bias {
        check_bias_dtype(input, weight, bias)?;
    }
    // A vector times a matrix is a matrix product with one row here.
    let kernel = if vector { Kernel::of(&input.dims, &weight.dims) } else { Kernel::Matrix };
    let dims = contract(call.info.index, &input.dims, &weight.dims).map_err(|mismatch| {
        let mut transposed = weight.dims;
        transposed.as_mut_slice().reverse();
        match mismatch {
            Mismatch::Batch(error) => error,
            Mismatch::Contracted => {
                let product = if bias.is_some() { "addmm" } else { "mm" };
                kernel.mismatch(product, &input.dims, &transposed)
            }
        }
    })?;
    match bias {
        Some(bias) => check_bias_shape(bias, &dims)?,
        None => check_product_dtype(kernel, input, weight)?,
    }
    kernel.check_bool(input.dtype)?;
    one(Meta::new(input.dtype, dims))
}

fn check_bias_dtype(input: &Meta, weight: &Meta, bias: &Meta) -> Result<(), RuleError> {
    let same = |name: &str, first: &Meta, second: &Meta| {
        if first.dtype == second.dtype {
            return Ok(());
        }
        let (first, second) = (first.dtype.scalar_type_name(), second.dtype.scalar_type_name());
        Err(RuleError::dtype(format!(
            "{name} and mat2 must have the same dtype, but got {first} and {second}"
        )))
    };
    same("self", bias, weight)?;
    same("mat1", input, weight)
}

fn check_bias_shape(bias: &Meta, result: &Dims) -> Result<(), RuleError> {
    // PyTorch flattens the batch to one dimension, and expands the bias to that.
    let rows = shape::product(before_end(result, 1));
    let flat = shape::dims([rows, size_before_end(result, 0)])?;
    let fits = shape::expands_to(&bias.dims, &flat) || shape::expands_to(&bias.dims, result);
    if fits || result.is_empty() {
        return Ok(());
    }
    Err(shape::cannot_expand(&bias.dims, bias.dtype, &flat, &flat))
}
