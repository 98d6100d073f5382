//! New tensors from attributes alone. Sizes are checked for all families in one place, `shape::check_size`.

use super::call::Call;
use super::error::RuleError;
use super::outputs::{Inferred, one};
use super::shape;
use crate::dtype::int_to_f64;
use crate::{Dtype, Meta, Scalar};

pub(super) fn full(call: &Call<'_>) -> Inferred {
    let (dims, value, dtype) = (call.dims(0)?, call.scalar(1)?, call.dtype(2)?);
    shape::check_size(dims)?;
    shape::check_stored(value, dtype)?;
    one(Meta::new(dtype, *dims))
}

pub(super) fn full_like(call: &Call<'_>) -> Inferred {
    call.tensor(0)?;
    full(call)
}

pub(super) fn upload(call: &Call<'_>) -> Inferred {
    one(Meta::new(call.dtype(1)?, *call.dims(0)?))
}

pub(super) fn eye(call: &Call<'_>) -> Inferred {
    let [rows, columns] = call.integers()?;
    for (name, size) in [("n", rows), ("m", columns)] {
        if size < 0 {
            return Err(RuleError::shape(format!(
                "{name} must be greater or equal to 0, got {size}"
            )));
        }
    }
    one(Meta::new(call.dtype(2)?, shape::dims([rows, columns])?))
}

pub(super) fn linspace(call: &Call<'_>) -> Inferred {
    let (steps, dtype) = (call.integer(2)?, call.dtype(3)?);
    if steps < 0 {
        return Err(RuleError::runtime("number of steps must be non-negative"));
    }
    if dtype == Dtype::Bool {
        return Err(RuleError::kernel("linspace_cpu", dtype));
    }
    one(Meta::new(dtype, shape::dims([steps])?))
}

pub(super) fn arange(call: &Call<'_>) -> Inferred {
    let (start, end, step) = (call.scalar(0)?, call.scalar(1)?, call.scalar(2)?);
    let dtype = call.dtype(3)?;
    if dtype == Dtype::Bool {
        return Err(RuleError::kernel("arange_cpu", dtype));
    }
    let (first, last, stride) = (start.as_f64(), end.as_f64(), step.as_f64());
    let mistake = if stride == 0.0 {
        "step must be nonzero".to_owned()
    } else if !first.is_finite() || !last.is_finite() {
        format!("unsupported range: {} -> {}", plain(first), plain(last))
    } else if !stride.is_finite() {
        format!("step must be finite but got {}", plain(stride))
    } else if (stride > 0.0 && last < first) || (stride < 0.0 && last > first) {
        "upper bound and lower bound inconsistent with step sign".to_owned()
    } else {
        let length = arange_length(dtype, start, end, step)
            .ok_or_else(|| RuleError::shape("invalid size, possible overflow?"))?;
        return one(Meta::new(dtype, shape::dims([length])?));
    };
    Err(RuleError::runtime(mistake))
}

/// Exact for integer arguments of an integer result, else in double precision, as `PyTorch`
/// computes it.
fn arange_length(dtype: Dtype, start: Scalar, end: Scalar, step: Scalar) -> Option<i64> {
    if let (Dtype::I64, Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) =
        (dtype, start, end, step)
    {
        let (distance, step) = (i128::from(end) - i128::from(start), i128::from(step));
        let length = (distance + step - step.signum()).checked_div(step)?;
        return i64::try_from(length).ok();
    }
    let length = ((end.as_f64() - start.as_f64()) / step.as_f64()).ceil();
    if !(0.0..int_to_f64(i64::MAX)).contains(&length) {
        return None;
    }
    #[allow(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        reason = "the range is checked"
    )]
    Some(length as i64)
}

/// A float in the format of C++ streams, where that differs from Rust's.
pub(super) fn plain(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { value.to_string() }
}
