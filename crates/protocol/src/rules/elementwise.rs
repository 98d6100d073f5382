//! Elementwise operators with broadcasting. Dtypes follow from the row; the few operators with
//! further checks have rules of their own.

use super::call::Call;
use super::error::RuleError;
use super::outputs::{Inferred, RuleArg, check_refused, one, promote};
use super::shape;
use crate::dtype::Promotion;
use crate::{Dims, Dtype, DtypeRule, Meta, Scalar};

pub(super) fn plain(call: &Call<'_>) -> Inferred {
    let (dims, common) = combine(call)?;
    check_refused(call.info, common)?;
    let dtype = match call.info.dtype {
        DtypeRule::Promote | DtypeRule::Family => common,
        DtypeRule::Float => floating(common),
        DtypeRule::Bool => Dtype::Bool,
        DtypeRule::First => call.tensor(0)?.dtype,
        DtypeRule::Index => Dtype::I64,
        DtypeRule::Sum | DtypeRule::Mean | DtypeRule::Truth => {
            return Err(RuleError::runtime(format!("{}: a reduction's dtype", call.info.name)));
        }
    };
    one(Meta::new(dtype, dims))
}

/// The common shape and dtype of all operands, of which one must be a tensor.
fn combine(call: &Call<'_>) -> Result<(Dims, Dtype), RuleError> {
    let mut promotion = Promotion::default();
    let mut dims = Dims::EMPTY;
    let mut found = false;
    for operand in call.operands {
        match operand {
            RuleArg::Absent => {}
            RuleArg::Scalar(scalar) => promotion.scalar(*scalar),
            RuleArg::Value(meta) => {
                promotion.tensor(meta.dtype, meta.dims.is_empty());
                if found {
                    shape::broadcast_into(&mut dims, &meta.dims)?;
                } else {
                    dims = meta.dims;
                }
                found = true;
            }
        }
    }
    if !found {
        call.tensor(0)?;
    }
    Ok((dims, promotion.dtype()))
}

/// Integers and bools become the default float dtype.
pub(super) fn floating(dtype: Dtype) -> Dtype {
    if dtype.is_differentiable() { dtype } else { Dtype::DEFAULT }
}

/// The dtype that an operand contributes to promotion.
fn dtype_of(operand: Option<&RuleArg<'_>>) -> Option<Dtype> {
    match operand? {
        RuleArg::Absent => None,
        RuleArg::Value(meta) => Some(meta.dtype),
        RuleArg::Scalar(scalar) => Some(scalar.dtype()),
    }
}

pub(super) fn sub(call: &Call<'_>) -> Inferred {
    let bool_at = |position| dtype_of(call.operands.get(position)) == Some(Dtype::Bool);
    match (bool_at(0), bool_at(1)) {
        (true, true) => Err(RuleError::unsupported_dtype(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` \
             operator instead.",
        )),
        (true, false) | (false, true) => Err(RuleError::unsupported_dtype(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, \
             use the `~` or `logical_not()` operator instead.",
        )),
        (false, false) => plain(call),
    }
}

pub(super) fn pow(call: &Call<'_>) -> Inferred {
    let common = promote(call.operands);
    match call.operands {
        [_, RuleArg::Scalar(exponent)] => {
            let negative = matches!(exponent, Scalar::Int(value) if *value < 0);
            if negative && !common.is_float() {
                return Err(RuleError::runtime(
                    "Integers to negative integer powers are not allowed.",
                ));
            }
            // Single precision may overflow to infinity.
            if common != Dtype::F32 {
                shape::check_stored(*exponent, common)?;
            }
        }
        [_, RuleArg::Value(_)] if common == Dtype::Bool => {
            return Err(RuleError::kernel("pow", common));
        }
        _ => {}
    }
    plain(call)
}

pub(super) fn polygamma(call: &Call<'_>) -> Inferred {
    if call.integer(0)? < 0 {
        return Err(RuleError::runtime("polygamma(n, x) does not support negative n."));
    }
    plain(call)
}

/// The square of a bool is an integer, its power 2.
pub(super) fn square(call: &Call<'_>) -> Inferred {
    let [operand] = call.tensors()?;
    let dtype = if operand.dtype == Dtype::Bool { Dtype::I64 } else { operand.dtype };
    one(Meta::new(dtype, operand.dims))
}

pub(super) fn cast(call: &Call<'_>) -> Inferred {
    one(Meta::new(call.dtype(0)?, call.tensor(0)?.dims))
}

/// `where`: the condition affects the shape, not the dtype.
pub(super) fn condition(call: &Call<'_>) -> Inferred {
    let condition = call.tensor(0)?;
    if condition.dtype != Dtype::Bool && condition.dtype != Dtype::U8 {
        return Err(RuleError::dtype(format!(
            "where expected condition to be a boolean tensor, but got a tensor with dtype {}",
            condition.dtype.scalar_type_name()
        )));
    }
    let (dims, _) = combine(call)?;
    let branches = call.operands_from(1);
    let dtype = promote(branches);
    // The number is a float32 first, and becomes an infinity in a half dtype.
    let stored = if matches!(dtype, Dtype::F16 | Dtype::Bf16) { Dtype::F32 } else { dtype };
    for branch in branches {
        if let RuleArg::Scalar(scalar) = branch {
            shape::check_stored(*scalar, stored)?;
        }
    }
    one(Meta::new(dtype, dims))
}

pub(super) fn clamp(call: &Call<'_>) -> Inferred {
    let (dims, common) = combine(call)?;
    call.tensor(0)?;
    let kernel = match (call.operands.get(1), call.operands.get(2)) {
        (Some(RuleArg::Absent) | None, Some(RuleArg::Absent) | None) => {
            return Err(RuleError::runtime(
                "torch.clamp: At least one of 'min' or 'max' must not be None",
            ));
        }
        (Some(RuleArg::Absent) | None, Some(RuleArg::Scalar(_))) => Some("clamp_max_scalar_cpu"),
        (Some(RuleArg::Scalar(_)), Some(RuleArg::Absent) | None) => Some("clamp_min_scalar_cpu"),
        (Some(RuleArg::Scalar(_)), Some(RuleArg::Scalar(_))) => Some("clamp_scalar_cpu"),
        (Some(RuleArg::Absent) | None, _) | (_, Some(RuleArg::Absent) | None) => None,
        (
            Some(RuleArg::Value(_) | RuleArg::Scalar(_)),
            Some(RuleArg::Value(_) | RuleArg::Scalar(_)),
        ) => Some("clamp_cpu"),
    };
    match kernel {
        Some(kernel) if common == Dtype::Bool => Err(RuleError::kernel(kernel, common)),
        Some(_) | None => one(Meta::new(common, dims)),
    }
}

pub(super) fn masked_fill(call: &Call<'_>) -> Inferred {
    let [operand, mask] = call.tensors()?;
    let dims = shape::broadcast(&mask.dims, &operand.dims)?;
    if let Some(RuleArg::Value(value)) = call.operands.get(2)
        && !value.dims.is_empty()
    {
        return Err(RuleError::shape(format!(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).",
            value.dims.len()
        )));
    }
    if mask.dtype != Dtype::Bool {
        return Err(RuleError::dtype(format!(
            "masked_fill_ only supports boolean masks, but got mask with dtype {}",
            mask.dtype.cpp_name()
        )));
    }
    if let Some(RuleArg::Scalar(value)) = call.operands.get(2) {
        shape::check_stored(*value, operand.dtype)?;
    }
    one(Meta::new(operand.dtype, dims))
}

/// `lerp` promotes only a weight without dimensions.
pub(super) fn lerp(call: &Call<'_>) -> Inferred {
    let [start, end] = call.tensors()?;
    let same = |name: &str, meta: &Meta| {
        if meta.dtype == start.dtype {
            return Ok(());
        }
        let (expected, found) = (start.dtype.cpp_name(), meta.dtype.cpp_name());
        Err(RuleError::dtype(format!(
            "expected dtype {expected} for `{name}` but got dtype {found}"
        )))
    };
    same("end", end)?;
    let weight = match call.operands.get(2) {
        Some(RuleArg::Value(weight)) => Some(weight),
        Some(RuleArg::Scalar(_) | RuleArg::Absent) | None => None,
    };
    if let Some(weight) = weight
        && !weight.dims.is_empty()
    {
        same("weight", weight)?;
    }
    let (dims, common) = combine(call)?;
    // A number as the weight does not affect the dtype.
    let (kernel, dtype) = match weight {
        Some(_) => ("lerp_kernel_tensor", common),
        None => ("lerp_kernel_scalar", start.dtype),
    };
    if !dtype.is_float() {
        return Err(RuleError::kernel(kernel, dtype));
    }
    one(Meta::new(dtype, dims))
}
