//! Functions of `gt` that are methods of its tensors, such as `gt.relu`.
//!
//! Unlike the method itself, such a function stored in a class does not become that class's
//! method, it takes `input=`, and it raises PyTorch's error where its first argument is no tensor.
//! It does not know any operator.

use super::tensor::Tensor;
use crate::client::emission::convert::class_name;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyDict, PyFloat, PyInt, PyString, PyTuple};

// A method as a function. This is not a doc comment, which would become the docstring of every
// instance.
#[pyclass(name = "Function", frozen, module = "gt._core")]
pub(crate) struct MethodFunction {
    name: String,
    method: Py<PyAny>,
    // Function that is called where the first argument is a number: PyTorch accepts one in some
    // functions.
    of_number: Option<Py<PyAny>>,
}

#[pymethods]
impl MethodFunction {
    #[new]
    #[pyo3(signature = (name, method, of_number=None))]
    fn new(name: String, method: Py<PyAny>, of_number: Option<Py<PyAny>>) -> Self {
        Self { name, method, of_number }
    }

    #[pyo3(signature = (*args, **named))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let method = self.method.bind(py);
        if args.is_empty()
            && let Some(named) = named
            && let Some(input) = named.get_item("input")?
        {
            let rest = named.copy()?;
            rest.del_item("input")?;
            return self.__call__(&PyTuple::new(py, [input])?, Some(&rest));
        }
        if let Some(of_number) = &self.of_number
            && args.get_item(0).is_ok_and(|first| is_number(&first))
        {
            return of_number.bind(py).call(args, named);
        }
        method.call(args, named).or_else(|error| match named {
            Some(named) if named.contains("out")? => self.without_out(args, named, error),
            _ => Err(self.explain(args, error)),
        })
    }

    #[getter]
    fn __name__(&self) -> &str {
        &self.name
    }

    #[getter]
    fn __wrapped__<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.method.bind(py)
    }

    fn __repr__(&self) -> String {
        format!("<function gt.{}>", self.name)
    }
}

/// Sets the documentation of the instances on the class: as a member of `MethodFunction` it would
/// be hidden by the class's own.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<MethodFunction>()?;
    let py = module.py();
    let read = wrap_pyfunction!(documentation, module)?;
    let property = py.import("builtins")?.getattr("property")?.call1((read,))?;
    py.get_type::<MethodFunction>().setattr("__doc__", property)
}

/// The function's signature, in which the tensor is called `input`, and the text of
/// `gt.documentation` or of its method.
#[pyfunction]
fn documentation(function: &Bound<'_, MethodFunction>) -> PyResult<String> {
    let py = function.py();
    let inner = function.get();
    let method = inner.method.bind(py);
    let shown = py.import("inspect")?.call_method1("signature", (method,))?.str()?.to_string();
    let shown = shown.replacen("(self", "(input", 1).replacen(", /", "", 1);
    let known = py.import("gt.documentation")?.call_method1("text", ("gt", &inner.name))?;
    let text: String =
        if known.is_none() { method.getattr("__doc__")?.extract()? } else { known.extract()? };
    Ok(format!("{}{shown}\n\n{text}", inner.name))
}

fn is_number(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
        || value.is_instance_of::<PyComplex>()
}

impl MethodFunction {
    /// Handles a call with `out=`, which no method takes: None is ignored, a tensor is refused.
    #[cold]
    fn without_out<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        named: &Bound<'py, PyDict>,
        error: PyErr,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        if !error.is_instance_of::<PyTypeError>(py) {
            return Err(error);
        }
        let rest = named.copy()?;
        rest.del_item("out")?;
        if named.get_item("out")?.is_some_and(|out| out.is_none()) {
            return self.__call__(args, Some(&rest));
        }
        let refused = py.import("gt.errors")?.call_method1("out_refused", (&self.name,))?;
        Err(PyErr::from_value(refused))
    }

    /// Rewords, as PyTorch does, Python's error for a method called on another type.
    #[cold]
    fn explain(&self, args: &Bound<'_, PyTuple>, error: PyErr) -> PyErr {
        let py = args.py();
        let about_types =
            error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyAttributeError>(py);
        let Ok(first) = args.get_item(0) else { return error };
        // The error for arguments that no operator takes as a tensor is always about types.
        let is_no_operand = first.is_instance_of::<PyString>() || first.is_none();
        if !about_types && !is_no_operand || first.is_instance_of::<Tensor>() {
            return error;
        }
        let kind = class_name;
        let name = &self.name;
        let is_overloaded = py.import("gt.aten.schemas").and_then(|schemas| {
            schemas.call_method1("is_overloaded", (name, args.len()))?.is_truthy()
        });
        if is_overloaded.unwrap_or(false) {
            let kinds: Vec<String> = args.iter().map(|value| kind(&value)).collect();
            return PyTypeError::new_err(format!(
                "{name}() received an invalid combination of arguments - got ({}), but expected one of:\n * (Tensor \
                 input, ...)",
                kinds.join(", ")
            ));
        }
        PyTypeError::new_err(format!(
            "{name}(): argument 'input' (position 1) must be Tensor, not {}",
            kind(&first)
        ))
    }
}
