//! Random draws: the shape is an attribute, and the rules check the distribution's parameters and
//! the box that is drawn.

use super::call::Call;
use super::create::plain;
use super::error::RuleError;
use super::outputs::{Inferred, Outputs, one, several};
use super::shape;
use crate::{Attr, Dims, Dtype, Meta, Scalar};

/// Checks that the drawn values are a whole tensor, or the box of it that `global` and `start`, the
/// last attributes, describe.
pub(super) fn check_box(call: &Call<'_>, outputs: &Outputs) -> Result<(), RuleError> {
    let Some(Meta { dims: size, .. }) = outputs.first() else { return Ok(()) };
    let place = call.info.attrs.len().saturating_sub(2);
    let (global, start) = match (call.attr(place), call.attr(place.saturating_add(1))) {
        (Attr::Ints(global), Attr::Ints(start)) => (global, start),
        (Attr::Absent, Attr::Absent) => return Ok(()),
        _ => return Err(RuleError::runtime("global and start are given together or not at all")),
    };
    shape::check_size(global)?;
    let inside = |((&size, &start), &whole): ((&i64, &i64), &i64)| {
        start >= 0 && start.checked_add(size).is_some_and(|end| end <= whole)
    };
    let ranks_agree = size.len() == start.len() && size.len() == global.len();
    if ranks_agree && size.iter().zip(start.iter()).zip(global.iter()).all(inside) {
        return Ok(());
    }
    Err(RuleError::shape(format!(
        "a box of shape {size} from {start} on is outside of a tensor of shape {global}"
    )))
}

/// Shape and dtype of the drawn values.
type Drawn<'d> = (&'d Dims, Dtype);

fn drawn<'c>(call: &Call<'c>) -> Result<Drawn<'c>, RuleError> {
    Ok((call.dims(0)?, call.dtype(1)?))
}

pub(super) fn random_like(call: &Call<'_>) -> Inferred {
    let (like, drawn) = (call.tensor(0)?, drawn(call)?);
    if like.dims != *drawn.0 {
        return Err(RuleError::shape(format!(
            "random_like draws what has the shape {} of its operand, not {}",
            like.dims, drawn.0
        )));
    }
    let (first, second) = (call.scalar(3)?, call.scalar(4)?);
    let integer = |scalar| match scalar {
        Scalar::Int(value) => Ok(value),
        Scalar::Bool(_) | Scalar::Float(_) => {
            Err(RuleError::runtime("integers are drawn between integers"))
        }
    };
    match call.choice(2)? {
        0 => uniform_of(drawn, first.as_f64(), second.as_f64()),
        1 => normal_of(drawn, second.as_f64()),
        2 => randint_of(drawn, integer(first)?, integer(second)?),
        _ => bernoulli_of(drawn, first.as_f64()),
    }
}

pub(super) fn uniform(call: &Call<'_>) -> Inferred {
    uniform_of(drawn(call)?, call.float(2)?, call.float(3)?)
}

fn uniform_of((dims, dtype): Drawn<'_>, low: f64, high: f64) -> Inferred {
    if !dtype.is_float() {
        return Err(RuleError::kernel("check_uniform_bounds", dtype));
    }
    for (name, bound) in [("from", low), ("to", high)] {
        if !bound.is_finite() {
            return Err(RuleError::runtime(format!(
                "{name} is out of bounds for {}",
                dtype.cpp_name()
            )));
        }
    }
    if low > high {
        return Err(RuleError::runtime(format!(
            "uniform_ expects to return a [from, to) range, but found from={low} > to={high}"
        )));
    }
    one(Meta::new(dtype, *dims))
}

pub(super) fn normal(call: &Call<'_>) -> Inferred {
    normal_of(drawn(call)?, call.float(3)?)
}

fn normal_of((dims, dtype): Drawn<'_>, deviation: f64) -> Inferred {
    if !dtype.is_float() {
        return Err(RuleError::kernel("normal_kernel_cpu", dtype));
    }
    if deviation.is_nan() || deviation < 0.0 {
        return Err(RuleError::runtime(format!(
            "normal expects std >= 0.0, but found std {}",
            plain(deviation)
        )));
    }
    one(Meta::new(dtype, *dims))
}

pub(super) fn randint(call: &Call<'_>) -> Inferred {
    randint_of(drawn(call)?, call.integer(2)?, call.integer(3)?)
}

fn randint_of((dims, dtype): Drawn<'_>, low: i64, high: i64) -> Inferred {
    if low >= high {
        return Err(RuleError::runtime(format!(
            "random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )));
    }
    let (least, most) = dtype.integer_range();
    for (name, bound) in [("from", i128::from(low)), ("to - 1", i128::from(high) - 1)] {
        if !(least..=most).contains(&bound) {
            return Err(RuleError::runtime(format!(
                "{name} is out of bounds for {}",
                dtype.cpp_name()
            )));
        }
    }
    one(Meta::new(dtype, *dims))
}

pub(super) fn bernoulli(call: &Call<'_>) -> Inferred {
    bernoulli_of(drawn(call)?, call.float(2)?)
}

fn bernoulli_of((dims, dtype): Drawn<'_>, probability: f64) -> Inferred {
    if !(0.0..=1.0).contains(&probability) {
        return Err(RuleError::runtime(format!(
            "bernoulli_ expects p to be in [0, 1], but got p={}",
            plain(probability)
        )));
    }
    one(Meta::new(dtype, *dims))
}

pub(super) fn dropout(call: &Call<'_>) -> Inferred {
    let (operand, probability) = (call.tensor(0)?, call.float(0)?);
    if !(0.0..=1.0).contains(&probability) {
        return Err(RuleError::value(format!(
            "dropout probability has to be between 0 and 1, but got {probability:?}"
        )));
    }
    if !operand.dtype.is_float() {
        return Err(RuleError::dtype(format!(
            "result type Float can't be cast to the desired output type {}",
            operand.dtype.scalar_type_name()
        )));
    }
    several(&[*operand, Meta::new(Dtype::Bool, operand.dims)])
}
