//! `gt.dtype`: element types as Python objects.

use crate::client::gil_cell::GilCell;
use gt_protocol::Dtype;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyString, PyType};

/// An element type, such as `gt.float32`.
#[pyclass(frozen, eq, hash, skip_from_py_object, name = "dtype", module = "gt")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDtype(pub Dtype);

/// The one object of each dtype, in [`Dtype::ALL`]'s order: `x.dtype is gt.float32` holds, as in PyTorch.
static OBJECTS: GilCell<Vec<Py<PyDtype>>> = GilCell::new(Vec::new());

/// Gives the module its dtypes.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let mut objects = Vec::new();
    for dtype in Dtype::ALL {
        let object = Bound::new(py, PyDtype(dtype))?;
        module.add(dtype.torch_name(), &object)?;
        objects.push(object.unbind());
    }
    *OBJECTS.get_mut(py) = objects;
    Ok(())
}

/// The object of a dtype.
pub(crate) fn object(py: Python<'_>, dtype: Dtype) -> PyResult<Py<PyDtype>> {
    let place = Dtype::ALL.into_iter().position(|each| each == dtype);
    match place.and_then(|place| OBJECTS.get(py).get(place).map(|object| object.clone_ref(py))) {
        Some(object) => Ok(object),
        None => Py::new(py, PyDtype(dtype)),
    }
}

#[pymethods]
#[allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::unused_self,
    reason = "methods of a Python class take &self"
)]
impl PyDtype {
    fn __repr__(&self) -> String {
        format!("gt.{}", self.0.torch_name())
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> u64 {
        self.0.size()
    }

    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }

    #[getter]
    fn is_signed(&self) -> bool {
        !matches!(self.0, Dtype::Bool | Dtype::U8)
    }

    #[getter]
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }

    /// The name in `PyTorch` and numpy: `float32`.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.torch_name()
    }

    fn __reduce__(&self) -> String {
        self.0.torch_name().to_owned()
    }
}

/// A dtype argument: `gt.float32`, `float`, `int`, `bool`, a numpy dtype, or a name.
pub(crate) struct DtypeArg(pub Dtype);

impl<'a, 'py> FromPyObject<'a, 'py> for DtypeArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let any = object.to_owned();
        if let Ok(dtype) = any.cast::<PyDtype>() {
            return Ok(Self(dtype.get().0));
        }
        if let Ok(class) = any.cast::<PyType>() {
            let py = any.py();
            for (python, dtype) in [
                (py.get_type::<PyFloat>(), Dtype::F64),
                (py.get_type::<PyBool>(), Dtype::Bool),
                (py.get_type::<PyInt>(), Dtype::I64),
                (py.get_type::<PyComplex>(), Dtype::C128),
            ] {
                if class.is(&python) {
                    return Ok(Self(dtype));
                }
            }
        }
        let name = match any.cast::<PyString>() {
            Ok(text) => text.to_string(),
            // numpy's dtypes and scalar types, and torch's scalar types, have a name.
            Err(_) => match any.getattr("name").or_else(|_| any.getattr("__name__")) {
                Ok(name) => name.to_string(),
                Err(_) => any.str()?.to_string().replace("torch.", ""),
            },
        };
        let name = if name == "bool_" { "bool" } else { &name };
        Dtype::ALL.into_iter().find(|dtype| dtype.torch_name() == name).map(Self).ok_or_else(|| {
            PyTypeError::new_err(format!(
                "dtype must be one of gt's dtypes (gt.float32, gt.int64, ...), not {name}"
            ))
        })
    }
}
