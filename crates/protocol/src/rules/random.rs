//! Draws: the shape is an attribute, the rules check the distribution's parameters and the box that is drawn.

use super::call::Call;
use super::create::plain;
use super::{Inferred, Rule, RuleError, Table, one, row, several, shape};
use crate::{Attr, Dims, Dtype, Meta, Op};

static RULES: Table<Rule> = &[
    (Op::Uniform, uniform),
    (Op::Normal, normal),
    (Op::Randint, randint),
    (Op::Bernoulli, bernoulli),
    (Op::Dropout, dropout),
];

pub(super) fn infer(call: &Call<'_>) -> Inferred {
    let outputs = row(RULES, call.op)?(call)?;
    if let Some(drawn) = outputs.first() {
        check_box(call, &drawn.dims)?;
    }
    Ok(outputs)
}

/// The values drawn are all of a tensor, or the box of it that `global` and `start`, the last attributes, tell.
fn check_box(call: &Call<'_>, size: &Dims) -> Result<(), RuleError> {
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
        "a box of shape {size} from {start} on does not lie in a tensor of shape {global}"
    )))
}

fn uniform(call: &Call<'_>) -> Inferred {
    let (dims, dtype, low, high) = (call.dims(0)?, call.dtype(1)?, call.float(2)?, call.float(3)?);
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

fn normal(call: &Call<'_>) -> Inferred {
    let (dims, dtype, deviation) = (call.dims(0)?, call.dtype(1)?, call.float(3)?);
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

fn randint(call: &Call<'_>) -> Inferred {
    let (dims, dtype, low, high) =
        (call.dims(0)?, call.dtype(1)?, call.integer(2)?, call.integer(3)?);
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

fn bernoulli(call: &Call<'_>) -> Inferred {
    let (dims, dtype, probability) = (call.dims(0)?, call.dtype(1)?, call.float(2)?);
    if !(0.0..=1.0).contains(&probability) {
        return Err(RuleError::runtime(format!(
            "bernoulli_ expects p to be in [0, 1], but got p={}",
            plain(probability)
        )));
    }
    one(Meta::new(dtype, *dims))
}

fn dropout(call: &Call<'_>) -> Inferred {
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
