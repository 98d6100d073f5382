//! Reductions over dimensions. The row gives the dtype of the result and says if an empty reduction
//! is allowed.

use super::call::Call;
use super::elementwise::floating;
use super::error::RuleError;
use super::outputs::{Inferred, check_refused, one, several};
use super::shape;
use super::shape::{DimSet, wrap_dim};
use crate::operator::OpInfo;
use crate::{Attr, Dims, Dtype, DtypeRule, Meta};

/// `PyTorch`'s name of the function, which its overloads share.
fn function(info: &OpInfo) -> &'static str {
    info.aten.split_once('.').map_or(info.aten, |(name, _)| name)
}

pub(super) fn infer(call: &Call<'_>) -> Inferred {
    let (info, operand) = (call.info, call.tensor(0)?);
    let dtype_attr = info.attr_index("dtype").and_then(|place| call.optional_dtype(place));
    let result = result_dtype(info, operand.dtype, dtype_attr)?;
    if info.running {
        wrap_dim(call.integer(0)?, operand.dims.len())?;
        check_refused(info, result)?;
        return with_places(info, Meta::new(result, operand.dims));
    }
    check_refused(info, if info.dtype == DtypeRule::Sum { result } else { operand.dtype })?;
    let keepdim = match info.attr_index("keepdim") {
        Some(place) => call.boolean(place)?,
        None => false,
    };
    let dims = reduced_dims(call, operand, keepdim)?;
    if info.nonempty {
        check_elements(call, &operand.dims, dims)?;
    }
    let dims = reduced(&operand.dims, dims.unwrap_or(DimSet::ALL), keepdim)?;
    with_places(info, Meta::new(result, dims))
}

/// The result, and its position along the dimension, for rows that return both.
fn with_places(info: &OpInfo, result: Meta) -> Inferred {
    if info.outputs == 2 {
        return several(&[result, Meta::new(Dtype::I64, result.dims)]);
    }
    one(result)
}

fn result_dtype(
    info: &OpInfo,
    operand: Dtype,
    dtype_attr: Option<Dtype>,
) -> Result<Dtype, RuleError> {
    Ok(match info.dtype {
        DtypeRule::Sum => {
            dtype_attr.unwrap_or(if operand.is_differentiable() { operand } else { Dtype::I64 })
        }
        DtypeRule::Mean => {
            let (result, which) =
                dtype_attr.map_or((operand, "Input"), |dtype| (dtype, "Optional"));
            if !result.is_differentiable() {
                return Err(RuleError::unsupported_dtype(format!(
                    "{}(): could not infer output dtype. {which} dtype must be either a floating point or complex \
                     dtype. Got: {}",
                    function(info),
                    result.scalar_type_name()
                )));
            }
            result
        }
        DtypeRule::Float => floating(operand),
        DtypeRule::First | DtypeRule::Promote | DtypeRule::Family => operand,
        DtypeRule::Index => Dtype::I64,
        DtypeRule::Truth if operand == Dtype::U8 => Dtype::U8,
        DtypeRule::Truth | DtypeRule::Bool => Dtype::Bool,
    })
}

/// The dimensions that are reduced; `None` for all of them.
fn reduced_dims(
    call: &Call<'_>,
    operand: &Meta,
    keepdim: bool,
) -> Result<Option<DimSet>, RuleError> {
    let rank = operand.dims.len();
    if let Attr::Int(dim) = call.attr(0) {
        return DimSet::of(&[*dim], rank).map(Some);
    }
    if let Attr::Absent = call.attr(0) {
        return Ok(None);
    }
    let list = call.dims(0)?;
    // An empty list means all dimensions, except in reductions of bools.
    if !list.is_empty() || call.info.dtype == DtypeRule::Truth {
        return DimSet::of(list, rank).map(Some);
    }
    // PyTorch wrongly keeps the dimensions here, except where nothing is computed.
    let keeps = call.info.dtype == DtypeRule::Float && rank > 0 && operand.elements() > 0;
    if keeps && !keepdim {
        let kept = vec![1; rank];
        return Err(RuleError::shape(format!(
            "output with shape [] doesn't match the broadcast shape {kept:?}"
        )));
    }
    Ok(None)
}

/// Checks that an extremum has elements to reduce.
fn check_elements(call: &Call<'_>, sizes: &Dims, reduced: Option<DimSet>) -> Result<(), RuleError> {
    let name = function(call.info);
    if !sizes.contains(&0) {
        return Ok(());
    }
    let Some(reduced) = reduced else {
        let text =
            format!("{name}(): Expected reduction dim to be specified for input.numel() == 0.");
        return Err(if call.info.dtype == DtypeRule::Index {
            RuleError::index(text)
        } else {
            RuleError::shape(text + " Specify the reduction dim with the 'dim' argument.")
        });
    };
    if let Attr::Ints(list) = call.attr(0) {
        // This error repeats the user's number.
        for &dim in list.iter() {
            if shape::size(sizes, wrap_dim(dim, sizes.len())?) == 0 {
                return Err(nothing_along(name, dim));
            }
        }
    }
    let empty = sizes.iter().enumerate().find(|(dim, size)| **size == 0 && reduced.contains(*dim));
    empty.map_or(Ok(()), |(dim, _)| Err(nothing_along(name, shape::length(dim))))
}

fn nothing_along(name: &str, dim: i64) -> RuleError {
    RuleError::index(format!("{name}(): Expected reduction dim {dim} to have non-zero size."))
}

fn reduced(sizes: &Dims, reduced: DimSet, keepdim: bool) -> Result<Dims, RuleError> {
    shape::dims(sizes.iter().enumerate().filter_map(|(dim, &size)| {
        if !reduced.contains(dim) {
            Some(size)
        } else if keepdim {
            Some(1)
        } else {
            None
        }
    }))
}
