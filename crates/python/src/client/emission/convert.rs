//! Python arguments into operands and attributes.

use super::{Arg, upload};
use crate::client::session::errors;
use crate::client::value::Tensor;
use crate::client::value::dtype::DtypeArg;
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dims, Dtype, Scalar};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyInt, PyList, PyTuple, PyType};

/// An argument that the user passed where a tensor or a number is expected.
pub(crate) enum OperandArg<'py> {
    Absent,
    Scalar(Scalar),
    /// Real and imaginary part of a complex number.
    Complex([f64; 2]),
    /// An integer from 2^63 to 2^64 - 1.
    Large(u64),
    Tensor(Bound<'py, Tensor>),
}

impl<'py> OperandArg<'py> {
    /// Converts to an operand; `None` where the object cannot be one.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        if let Ok(tensor) = object.cast::<Tensor>() {
            return Ok(Some(Self::Tensor(tensor.clone())));
        }
        if let Some(number) = large(object) {
            return Ok(Some(Self::Large(number)));
        }
        if let Some(scalar) = scalar(object)? {
            return Ok(Some(Self::Scalar(scalar)));
        }
        if object.is_none() {
            return Ok(Some(Self::Absent));
        }
        if let Ok(number) = object.cast::<PyComplex>() {
            return Ok(Some(Self::Complex([number.real(), number.imag()])));
        }
        // numpy's scalars and arrays
        if object.hasattr("__array_interface__")? || object.hasattr("__array_struct__")? {
            if object.getattr("ndim")?.extract::<usize>()? == 0 {
                let item = object.call_method0("item")?;
                return Self::of(&item);
            }
            return Ok(Some(Self::Tensor(upload::from_array(object)?)));
        }
        Ok(None)
    }

    /// Converts to an operand, or raises a type error that names the operator.
    pub(crate) fn required(object: &Bound<'py, PyAny>, op: &str) -> PyResult<Self> {
        Self::of(object)?.ok_or_else(|| refusal(object, op))
    }
}

/// The type error for an object that is no operand; it names `op` if that is not empty.
pub(crate) fn refusal(object: &Bound<'_, PyAny>, op: &str) -> PyErr {
    let given = class_name(object);
    let whose = if op.is_empty() { String::new() } else { format!("{op}(): ") };
    PyTypeError::new_err(format!("{whose}argument must be Tensor or a number, not {given}"))
}

/// The name of an object's class. For a `PyTorch` tensor it adds how to convert it, since both
/// classes are called Tensor.
#[pyfunction]
pub(crate) fn class_name(object: &Bound<'_, PyAny>) -> String {
    let class = object.get_type();
    let name = class.name().map(|name| name.to_string()).unwrap_or_default();
    if !is_torch_tensor(object) {
        return name;
    }
    format!("torch.{name}: gt.from_torch(x) makes a GT tensor of it, gt.to_torch(x) the other way")
}

/// Returns true if the object is a tensor of `PyTorch`; `PyTorch` is not imported for this.
pub(crate) fn is_torch_tensor(object: &Bound<'_, PyAny>) -> bool {
    let of_torch = |class: &Bound<'_, PyType>| {
        class.module().is_ok_and(|name| name.to_string().starts_with("torch"))
    };
    of_torch(&object.get_type()) && object.hasattr("untyped_storage").unwrap_or(false)
}

impl<'a, 'py> FromPyObject<'a, 'py> for OperandArg<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let object = object.to_owned();
        Self::of(&object)?.ok_or_else(|| refusal(&object, ""))
    }
}

pub(crate) fn as_arg<'a>(operand: &'a OperandArg<'_>) -> Arg<'a> {
    match operand {
        OperandArg::Absent => Arg::Absent,
        OperandArg::Scalar(scalar) => Arg::Scalar(*scalar),
        OperandArg::Complex(parts) => Arg::Complex(*parts),
        OperandArg::Large(number) => Arg::Large(*number),
        OperandArg::Tensor(tensor) => Arg::Var(&tensor.get().var),
    }
}

/// `PyTorch`'s message where an integer dtype is to hold a number from 2^63 on.
pub(crate) const TOO_LARGE: &str = "value cannot be converted to type int64_t without overflow";

/// An integer from 2^63 to 2^64 - 1; `None` for anything else.
fn large(object: &Bound<'_, PyAny>) -> Option<u64> {
    if !object.is_exact_instance_of::<PyInt>() || object.extract::<i64>().is_ok() {
        return None;
    }
    object.extract().ok()
}

/// The number rounded to a float.
#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "rounding is intended")]
pub(crate) const fn rounded(number: u64) -> f64 {
    number as f64
}

/// A Python number; `None` for anything else.
pub(crate) fn scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if object.is_instance_of::<PyBool>() {
        return Ok(Some(Scalar::Bool(object.extract()?)));
    }
    if object.is_instance_of::<PyInt>() {
        return object.extract::<i64>().map(|value| Some(Scalar::Int(value))).map_err(|_| {
            if object.lt(0).is_ok_and(|negative| negative) {
                return PyOverflowError::new_err("can't convert negative int to unsigned");
            }
            if object.extract::<u64>().is_err() {
                return PyOverflowError::new_err("int too big to convert");
            }
            errors::mistake(object.py(), ErrorClass::Runtime, TOO_LARGE)
        });
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(object.extract()?)));
    }
    Ok(None)
}

/// A number argument: Python's or numpy's, or a tensor of one element (which is read).
pub(crate) struct ScalarArg(pub Scalar);

impl<'a, 'py> FromPyObject<'a, 'py> for ScalarArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let any = object.to_owned();
        if let Some(scalar) = scalar(&any)? {
            return Ok(Self(scalar));
        }
        if any.hasattr("item")? {
            let item = any.call_method0("item")?;
            if let Some(scalar) = scalar(&item)? {
                return Ok(Self(scalar));
            }
        }
        let given = any.get_type().name()?.to_string();
        Err(PyTypeError::new_err(format!("argument must be Number, not {given}")))
    }
}

/// The factor of an operand: `alpha` of `x.add(y, alpha=2)`.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FactorArg {
    Scalar(Scalar),
    /// Real and imaginary part.
    Complex([f64; 2]),
}

impl FactorArg {
    pub(crate) const ONE: Self = Self::Scalar(Scalar::Int(1));
}

impl<'a, 'py> FromPyObject<'a, 'py> for FactorArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(number) = object.cast::<PyComplex>() {
            return Ok(Self::Complex([number.real(), number.imag()]));
        }
        if let Some(number) = large(&object) {
            return Ok(Self::Scalar(Scalar::Float(rounded(number)))); // integer dtypes refuse the float
        }
        ScalarArg::extract(object).map(|number| Self::Scalar(number.0))
    }
}

/// One integer or a sequence of them: a size, or dimensions.
#[derive(Clone, Copy)]
pub(crate) struct DimsArg(pub Dims);

impl DimsArg {
    /// Reads `*size`: integers, or one sequence of them; or a keyword argument whose name is among
    /// `names`.
    pub(crate) fn of_arguments(
        arguments: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
        names: &[&str],
    ) -> PyResult<Self> {
        if let Some((name, value)) = named.and_then(|named| named.iter().next()) {
            let name: String = name.extract()?;
            if !arguments.is_empty()
                || named.map_or(0, PyDictMethods::len) > 1
                || !names.contains(&name.as_str())
            {
                return Err(PyTypeError::new_err(format!(
                    "got an unexpected keyword argument '{name}'"
                )));
            }
            return value.extract();
        }
        if arguments.len() == 1 {
            let only = arguments.get_item(0)?;
            if only.cast::<PyTuple>().is_ok() || only.cast::<PyList>().is_ok() {
                return only.extract();
            }
        }
        of_sequence(arguments.as_any())
    }
}

/// The value of a required parameter; an error where neither of its names was given.
pub(crate) fn required<T>(value: Option<T>, op: &str, name: &str) -> PyResult<T> {
    value.ok_or_else(|| {
        PyTypeError::new_err(format!("{op}() missing 1 required positional arguments: \"{name}\""))
    })
}

/// The operand, where PyTorch takes only a tensor.
pub(crate) fn only_tensor<'py>(
    operand: OperandArg<'py>,
    op: &str,
    name: &str,
) -> PyResult<OperandArg<'py>> {
    let given = match operand {
        OperandArg::Tensor(_) => return Ok(operand),
        OperandArg::Absent => "NoneType",
        OperandArg::Scalar(Scalar::Bool(_)) => "bool",
        OperandArg::Scalar(Scalar::Int(_)) | OperandArg::Large(_) => "int",
        OperandArg::Scalar(Scalar::Float(_)) => "float",
        OperandArg::Complex(_) => "complex",
    };
    Err(PyTypeError::new_err(format!(
        "{op}(): argument '{name}' (position 2) must be Tensor, not {given}"
    )))
}

fn of_sequence(sequence: &Bound<'_, PyAny>) -> PyResult<DimsArg> {
    let mut dims = Dims::EMPTY;
    for (position, item) in sequence.try_iter()?.enumerate() {
        if !dims.push(member(position, &item?)?) {
            return Err(errors::mistake(
                sequence.py(),
                ErrorClass::Shape,
                format!("gt's tensors have at most {} dimensions", gt_protocol::meta::DIMS_MAX),
            ));
        }
    }
    Ok(DimsArg(dims))
}

/// An integer of a sequence. `PyTorch` refuses a bool only as the first item.
fn member(position: usize, object: &Bound<'_, PyAny>) -> PyResult<i64> {
    if position > 0 && object.is_instance_of::<PyBool>() {
        return object.extract::<bool>().map(i64::from);
    }
    integer(object).map_err(|mistake| {
        if !object.is_instance_of::<PyInt>() || object.is_instance_of::<PyBool>() {
            return mistake;
        }
        let (place, why) = (position + 1, mistake.value(object.py()).to_string());
        PyTypeError::new_err(format!(
            "failed to unpack the object at pos {place} with error \"{why}\""
        ))
    })
}

/// An integer, also one of numpy or a tensor of one element; as in `PyTorch` a bool is refused.
pub(crate) fn integer(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    if object.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("must be int, not bool"));
    }
    if object.is_instance_of::<PyFloat>() {
        return Err(PyTypeError::new_err("'float' object cannot be interpreted as an integer"));
    }
    object.extract().map_err(|mistake: PyErr| {
        let py = object.py();
        if !mistake.is_instance_of::<PyOverflowError>(py) {
            return mistake;
        }
        errors::mistake(py, ErrorClass::Value, "Overflow when unpacking long long")
    })
}

/// [`integer`], or `None` for Python's None.
pub(crate) fn optional_integer(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_none() { Ok(None) } else { integer(object).map(Some) }
}

impl<'a, 'py> FromPyObject<'a, 'py> for DimsArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let any = object.to_owned();
        if any.cast::<PyTuple>().is_ok() || any.cast::<PyList>().is_ok() {
            return of_sequence(&any);
        }
        let mut dims = Dims::EMPTY;
        let _ = dims.push(integer(&any)?);
        Ok(Self(dims))
    }
}

/// Converts a Rust argument to an attribute.
pub(crate) trait IntoAttr {
    fn attr(self) -> Attr;
}

impl IntoAttr for bool {
    fn attr(self) -> Attr {
        Attr::Bool(self)
    }
}

impl IntoAttr for i64 {
    fn attr(self) -> Attr {
        Attr::Int(self)
    }
}

impl IntoAttr for f64 {
    fn attr(self) -> Attr {
        Attr::Float(self)
    }
}

impl IntoAttr for DimsArg {
    fn attr(self) -> Attr {
        Attr::Ints(self.0)
    }
}

impl IntoAttr for DtypeArg {
    fn attr(self) -> Attr {
        Attr::Dtype(self.0)
    }
}

impl IntoAttr for Dtype {
    fn attr(self) -> Attr {
        Attr::Dtype(self)
    }
}

impl IntoAttr for ScalarArg {
    fn attr(self) -> Attr {
        Attr::Scalar(self.0)
    }
}

impl<T: IntoAttr> IntoAttr for Option<T> {
    fn attr(self) -> Attr {
        self.map_or(Attr::Absent, IntoAttr::attr)
    }
}

/// A number as a Python object.
pub(crate) fn scalar_object(py: Python<'_>, scalar: Scalar) -> PyResult<Bound<'_, PyAny>> {
    Ok(match scalar {
        Scalar::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Scalar::Int(value) => value.into_pyobject(py)?.into_any(),
        Scalar::Float(value) => PyFloat::new(py, value).into_any(),
    })
}

/// Converts a Python object to the attribute that `info` describes.
pub(crate) fn attr_of(object: &Bound<'_, PyAny>, info: &gt_protocol::AttrInfo) -> PyResult<Attr> {
    use gt_protocol::AttrKind;
    if object.is_none() {
        return Ok(Attr::Absent);
    }
    Ok(match info.kind {
        AttrKind::Bool => Attr::Bool(object.extract()?),
        AttrKind::Int => Attr::Int(integer(object)?),
        AttrKind::Float => Attr::Float(object.extract()?),
        AttrKind::Scalar => object.extract::<ScalarArg>()?.attr(),
        AttrKind::Dtype => object.extract::<DtypeArg>()?.attr(),
        AttrKind::Ints => object.extract::<DimsArg>()?.attr(),
        AttrKind::List => Attr::List(object.extract::<Vec<i64>>()?.into()),
        AttrKind::Text => Attr::Text(object.extract::<String>()?.into()),
        AttrKind::Choice(words) => choice(object.extract()?, words, info.name)?,
    })
}

/// Converts a word of a closed list to an attribute.
pub(crate) fn choice(word: &str, words: &[&str], name: &str) -> PyResult<Attr> {
    words
        .iter()
        .position(|known| *known == word)
        .and_then(|place| u8::try_from(place).ok())
        .map(Attr::Choice)
        .ok_or_else(|| {
            pyo3::exceptions::PyValueError::new_err(format!(
                "{name}: expected one of {}, got {word:?}",
                words.join(", ")
            ))
        })
}
