//! Folds over dimensions. Operators differ in the result's dtype and in what they make of nothing.

use super::call::Call;
use super::elementwise::floating;
use super::shape::{DimSet, wrap_dim};
use super::{Inferred, RuleError, Table, one, row, several, shape};
use crate::{Attr, Dims, Dtype, Meta, Op};

/// Where the result's dtype comes from.
#[derive(Clone, Copy)]
enum Kind {
    /// The attribute's, else int64 for integers and bools.
    Sum,
    /// The attribute's or the operand's, which must be a float.
    Mean,
    /// The operand's, which must be a float.
    Variance,
    /// The operand's; integers become float.
    Logarithm,
    /// The operand's; there must be elements.
    Extremum,
    /// Extremum and its position.
    ExtremumAndPosition,
    /// int64; bools have no order, and there must be elements.
    Position,
    /// Bool; bytes stay bytes, as `PyTorch`'s first masks were.
    Truth,
    /// As [`Kind::Sum`], with every dimension kept as it is.
    Running,
}

/// Kind, `PyTorch`'s name of the function, and positions of the attributes `keepdim` and `dtype`.
static REDUCTIONS: Table<(Kind, &str, usize, usize)> = &[
    (Op::Sum, (Kind::Sum, "sum", 1, 2)),
    (Op::Mean, (Kind::Mean, "mean", 1, 2)),
    (Op::Prod, (Kind::Sum, "prod", 1, 2)),
    (Op::Amax, (Kind::Extremum, "amax", 1, usize::MAX)),
    (Op::Amin, (Kind::Extremum, "amin", 1, usize::MAX)),
    (Op::Argmax, (Kind::Position, "argmax", 1, usize::MAX)),
    (Op::Argmin, (Kind::Position, "argmin", 1, usize::MAX)),
    (Op::MaxDim, (Kind::ExtremumAndPosition, "max", 1, usize::MAX)),
    (Op::MinDim, (Kind::ExtremumAndPosition, "min", 1, usize::MAX)),
    (Op::All, (Kind::Truth, "all", 1, usize::MAX)),
    (Op::Any, (Kind::Truth, "any", 1, usize::MAX)),
    (Op::Var, (Kind::Variance, "var", 2, usize::MAX)),
    (Op::Logsumexp, (Kind::Logarithm, "logsumexp", 1, usize::MAX)),
    (Op::Cumsum, (Kind::Running, "cumsum", usize::MAX, 1)),
];

pub(super) fn infer(call: &Call<'_>) -> Inferred {
    let &(kind, name, keepdim, dtype) = row(REDUCTIONS, call.op)?;
    let operand = call.tensor(0)?;
    let asked = call.optional_dtype(dtype);
    let result = result_dtype(kind, name, operand.dtype, asked)?;
    if let Kind::Running = kind {
        wrap_dim(call.integer(0)?, operand.dims.len())?;
        if result == Dtype::Bool {
            return Err(RuleError::kernel("cumsum_out_cpu", result));
        }
        return one(Meta::new(result, operand.dims));
    }
    let dims = reduced_dims(call, kind, operand)?;
    check_elements(call, kind, name, &operand.dims, dims)?;
    let dims = fold(&operand.dims, dims.unwrap_or(DimSet::ALL), call.boolean(keepdim)?)?;
    let output = Meta::new(result, dims);
    if let Kind::ExtremumAndPosition = kind {
        return several(&[output, Meta::new(Dtype::I64, dims)]);
    }
    one(output)
}

fn result_dtype(
    kind: Kind,
    name: &str,
    operand: Dtype,
    asked: Option<Dtype>,
) -> Result<Dtype, RuleError> {
    Ok(match kind {
        Kind::Sum | Kind::Running => {
            asked.unwrap_or(if operand.is_float() { operand } else { Dtype::I64 })
        }
        Kind::Mean => {
            let (result, which) = asked.map_or((operand, "Input"), |dtype| (dtype, "Optional"));
            if !result.is_float() {
                return Err(RuleError::unsupported_dtype(format!(
                    "mean(): could not infer output dtype. {which} dtype must be either a floating point or complex \
                     dtype. Got: {}",
                    result.scalar_type_name()
                )));
            }
            result
        }
        Kind::Variance if !operand.is_float() => {
            return Err(RuleError::unsupported_dtype(
                "std and var only support floating point and complex dtypes",
            ));
        }
        Kind::Position if operand == Dtype::Bool => {
            return Err(RuleError::unsupported_dtype(format!(
                "{name}(): does not support bool input"
            )));
        }
        Kind::Logarithm => floating(operand),
        Kind::Variance | Kind::Extremum | Kind::ExtremumAndPosition => operand,
        Kind::Position => Dtype::I64,
        Kind::Truth if operand == Dtype::U8 => Dtype::U8,
        Kind::Truth => Dtype::Bool,
    })
}

/// The dimensions that go away; `None` for all of them.
fn reduced_dims(call: &Call<'_>, kind: Kind, operand: &Meta) -> Result<Option<DimSet>, RuleError> {
    let rank = operand.dims.len();
    if let Attr::Int(_) = call.attr(0) {
        return DimSet::of(&[call.integer(0)?], rank).map(Some);
    }
    if let Attr::Absent = call.attr(0) {
        return Ok(None);
    }
    let list = call.dims(0)?;
    match kind {
        // An empty list means all dimensions everywhere but here.
        Kind::Truth => DimSet::of(list, rank).map(Some),
        // PyTorch keeps the dimensions here where it must not, except where nothing is computed.
        Kind::Logarithm
            if list.is_empty() && rank > 0 && !call.boolean(1)? && operand.elements() > 0 =>
        {
            let kept = vec![1; rank];
            Err(RuleError::shape(format!(
                "output with shape [] doesn't match the broadcast shape {kept:?}"
            )))
        }
        Kind::Sum
        | Kind::Mean
        | Kind::Variance
        | Kind::Logarithm
        | Kind::Extremum
        | Kind::ExtremumAndPosition
        | Kind::Position
        | Kind::Running => {
            if list.is_empty() {
                Ok(None)
            } else {
                DimSet::of(list, rank).map(Some)
            }
        }
    }
}

/// An extremum of nothing does not exist.
fn check_elements(
    call: &Call<'_>,
    kind: Kind,
    name: &str,
    sizes: &Dims,
    reduced: Option<DimSet>,
) -> Result<(), RuleError> {
    let position = match kind {
        Kind::Position => true,
        Kind::Extremum | Kind::ExtremumAndPosition => false,
        Kind::Sum | Kind::Mean | Kind::Variance | Kind::Logarithm | Kind::Truth | Kind::Running => {
            return Ok(());
        }
    };
    if !sizes.contains(&0) {
        return Ok(());
    }
    let Some(reduced) = reduced else {
        let text =
            format!("{name}(): Expected reduction dim to be specified for input.numel() == 0.");
        return Err(if position {
            RuleError::index(text)
        } else {
            RuleError::shape(text + " Specify the reduction dim with the 'dim' argument.")
        });
    };
    if let (Kind::Extremum, Attr::Ints(list)) = (kind, call.attr(0)) {
        // This one repeats the user's number.
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

fn fold(sizes: &Dims, reduced: DimSet, keepdim: bool) -> Result<Dims, RuleError> {
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
