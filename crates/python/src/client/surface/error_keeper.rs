//! Errors of Python's that wait while a C++ library asks Python something else: in PyTorch's backward passes.

use pyo3::prelude::*;
use std::cell::RefCell;

thread_local! {
    /// The first error of this thread that nobody has taken.
    static KEPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Adds this file's class.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ErrorKeeper>()
}

/// A function that always gives the same answer, and keeps an error that is set while it is called.
///
/// A Python function that is called then fails, and C++ that may not fail ends the process.
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

    /// The error that this thread's calls kept, once.
    #[staticmethod]
    fn take(py: Python<'_>) -> Option<Py<PyAny>> {
        let error = KEPT.with(|kept| kept.borrow_mut().take())?;
        Some(error.into_value(py).into_any())
    }
}
