//! Tensors from Python's numbers: floats, ints and bools, alone or in lists.
//!
//! Everything else is left to `gt/tensors/conversion.py`, which also words the errors: numpy's numbers,
//! tensors and complex numbers among them, lists of unequal length, ints beyond the dtype, narrow
//! dtypes.

use super::default_float::default_float;
use super::{emit, read, upload};
use crate::client::session::known::{self, Sender};
use crate::client::value::Tensor;
use gt_protocol::meta::DIMS_MAX;
use gt_protocol::{Dims, Dtype, Scalar};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyTuple};

/// Kinds of numbers, in the order of promotion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NumberKind {
    Bool,
    Int,
    Float,
}

/// One level of nested lists of equal length; subclasses are not accepted.
enum Level<'a, 'py> {
    List(&'a Bound<'py, PyList>),
    Tuple(&'a Bound<'py, PyTuple>),
    Number(NumberKind),
}

impl<'a, 'py> Level<'a, 'py> {
    fn of(data: &'a Bound<'py, PyAny>) -> Option<Self> {
        if data.is_exact_instance_of::<PyFloat>() {
            return Some(Self::Number(NumberKind::Float));
        }
        if data.is_exact_instance_of::<PyInt>() {
            return Some(Self::Number(NumberKind::Int));
        }
        if data.is_exact_instance_of::<PyBool>() {
            return Some(Self::Number(NumberKind::Bool));
        }
        if let Ok(list) = data.cast_exact::<PyList>() {
            return Some(Self::List(list));
        }
        data.cast_exact::<PyTuple>().ok().map(Self::Tuple)
    }

    fn len(&self) -> Option<usize> {
        match self {
            Self::List(list) => Some(list.len()),
            Self::Tuple(tuple) => Some(tuple.len()),
            Self::Number(_) => None,
        }
    }
}

/// A tensor of these numbers, with PyTorch's dtype; `None` for data other than plain numbers that
/// `dtype` can hold.
pub(crate) fn from_numbers<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Option<Dtype>,
    requires_grad: bool,
) -> PyResult<Option<Bound<'py, Tensor>>> {
    let py = data.py();
    let Some(lengths) = lengths(data) else { return Ok(None) };
    let mut kind = None;
    if !survey(data, &lengths, &mut kind) {
        return Ok(None);
    }
    let Some(kind) = kind else { return Ok(None) }; // no number in it: numpy decides the dtype
    let by_kind = match kind {
        NumberKind::Bool => Dtype::Bool,
        NumberKind::Int if requires_grad => default_float(py),
        NumberKind::Int => Dtype::I64,
        NumberKind::Float => default_float(py),
    };
    let dtype = dtype.unwrap_or(by_kind);
    if requires_grad && !dtype.is_float() {
        return Ok(None);
    }
    let sizes: Option<Vec<i64>> =
        lengths.iter().map(|&length| i64::try_from(length).ok()).collect();
    let Some(dims) = sizes.and_then(|sizes| Dims::new(&sizes)) else { return Ok(None) };
    let tensor = if lengths.is_empty() {
        let Some(number) = number(data, dtype) else { return Ok(None) };
        let var = emit::full(py, dims, number, dtype)?;
        let mut bytes = [0_u8; 8];
        let length = place(number, dtype, &mut bytes);
        let bytes = &bytes[..length];
        var.with_value(py, |value| {
            known::remember(py, value.slot, value.epoch, bytes, Sender::Program);
        });
        Tensor::wrap(py, var)?
    } else {
        let mut bytes = Vec::with_capacity(lengths.iter().product::<usize>() * 8);
        if !write(data, dtype, &mut bytes) {
            return Ok(None);
        }
        upload::from_bytes(py, &bytes, dims, dtype)?
    };
    Tensor::require_grad(&tensor, requires_grad)?;
    Ok(Some(tensor))
}

/// The shape of nested lists, read along the first elements.
fn lengths(data: &Bound<'_, PyAny>) -> Option<Vec<usize>> {
    let mut lengths = Vec::new();
    let mut data = data.clone();
    loop {
        let first = match Level::of(&data)? {
            Level::Number(_) => return Some(lengths),
            Level::List(list) => list.get_item(0),
            Level::Tuple(tuple) => tuple.get_item(0),
        };
        lengths.push(Level::of(&data)?.len()?);
        if lengths.len() > DIMS_MAX {
            return None;
        }
        data = first.ok()?; // an empty list has no first element
    }
}

/// Returns true if the data is plain and has the shape `lengths`; `kind` becomes the promoted kind
/// of the numbers.
fn survey(data: &Bound<'_, PyAny>, lengths: &[usize], kind: &mut Option<NumberKind>) -> bool {
    let Some(level) = Level::of(data) else { return false };
    match (level, lengths) {
        (Level::Number(own), []) => {
            *kind = (*kind).max(Some(own));
            true
        }
        (Level::List(list), [length, inner @ ..]) => {
            list.len() == *length && list.iter().all(|each| survey(&each, inner, kind))
        }
        (Level::Tuple(tuple), [length, inner @ ..]) => {
            tuple.len() == *length && tuple.iter().all(|each| survey(&each, inner, kind))
        }
        (Level::Number(_), _) | (Level::List(_) | Level::Tuple(_), []) => false,
    }
}

/// Appends the elements' bytes; returns false where `dtype` cannot hold a number.
fn write(data: &Bound<'_, PyAny>, dtype: Dtype, bytes: &mut Vec<u8>) -> bool {
    match Level::of(data) {
        Some(Level::List(list)) => list.iter().all(|each| write(&each, dtype, bytes)),
        Some(Level::Tuple(tuple)) => tuple.iter().all(|each| write(&each, dtype, bytes)),
        Some(Level::Number(_)) => {
            let Some(number) = number(data, dtype) else { return false };
            let mut element = [0_u8; 8];
            let length = place(number, dtype, &mut element);
            bytes.extend_from_slice(&element[..length]);
            true
        }
        None => false,
    }
}

/// Writes an element's bytes; returns their number.
fn place(number: Scalar, dtype: Dtype, bytes: &mut [u8; 8]) -> usize {
    match (number, dtype) {
        (Scalar::Float(value), Dtype::F32) => {
            bytes[..4].copy_from_slice(&narrow(value).to_ne_bytes());
        }
        (Scalar::Float(value), _) => *bytes = value.to_ne_bytes(),
        (Scalar::Int(value), _) => *bytes = value.to_ne_bytes(),
        (Scalar::Bool(value), _) => bytes[0] = value.into(),
    }
    read::element_bytes(dtype)
}

/// Converts a number to `dtype`: a float from any kind, an int from an int or bool, a bool from a
/// bool.
fn number(data: &Bound<'_, PyAny>, dtype: Dtype) -> Option<Scalar> {
    match dtype {
        Dtype::F32 => data.extract().ok().map(|value| Scalar::Float(narrow(value).into())),
        Dtype::F64 => data.extract().ok().map(Scalar::Float),
        Dtype::I64 if !data.is_exact_instance_of::<PyFloat>() => {
            data.extract().ok().map(Scalar::Int)
        }
        Dtype::Bool => data.cast_exact::<PyBool>().ok().map(|value| Scalar::Bool(value.is_true())),
        _ => None,
    }
}

#[allow(clippy::as_conversions, clippy::cast_possible_truncation, reason = "rounding is intended")]
fn narrow(value: f64) -> f32 {
    value as f32
}
