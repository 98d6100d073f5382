//! Draws: the shape is an attribute, the rules check the distribution's parameters.

use super::call::Call;
use super::create::plain;
use super::{Inferred, Rule, RuleError, Table, one, row, several};
use crate::{Dtype, Meta, Op};

static RULES: Table<Rule> = &[
    (Op::Uniform, uniform),
    (Op::Normal, normal),
    (Op::Randint, randint),
    (Op::Bernoulli, bernoulli),
    (Op::Dropout, dropout),
];

pub(super) fn infer(call: &Call<'_>) -> Inferred {
    row(RULES, call.op)?(call)
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
        return Err(RuleError::runtime(format!(
            "result type Float can't be cast to the desired output type {}",
            operand.dtype.scalar_type_name()
        )));
    }
    several(&[*operand, Meta::new(Dtype::Bool, operand.dims)])
}
