//! Python errors that wait while a C++ library calls back into Python: in PyTorch's backward
//! passes.

use pyo3::prelude::*;
use std::cell::RefCell;

thread_local! {
    /// The first error of this thread that has not been taken yet.
    static KEPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Adds this file's class.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ErrorKeeper>()
}

/// A function that always returns the same answer, and keeps an error that is set when it is
/// called.
///
/// A Python function called with an error set would fail, and C++ code that may not throw would end
/// the process.
#[pyclass(frozen, module = "gt._core")]
struct ErrorKeeper {
    answer: Py<PyAny>,
}

#[pymethods]
impl ErrorKeeper {
    #[new]
    fn new(answer: Py<PyAny>) -> Self {
        Self { answer }
    }

    fn __call__(&self, py: Python<'_>) -> Py<PyAny> {
        if let Some(error) = PyErr::take(py) {
            KEPT.with(|kept| {
                kept.borrow_mut().get_or_insert(error);
            });
        }
        self.answer.clone_ref(py)
    }

    /// Takes the error that this thread's calls kept.
    #[staticmethod]
    fn take(py: Python<'_>) -> Option<Py<PyAny>> {
        let error = KEPT.with(|kept| kept.borrow_mut().take())?;
        Some(error.into_value(py).into_any())
    }
}
