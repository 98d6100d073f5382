//! Properties of a tensor's memory and kind that `PyTorch` has; none of them needs an instruction.

use super::generated_help::help;
use super::tensor::Tensor;
use crate::client::session::errors;
use gt_protocol::rules::ErrorClass;
use pyo3::prelude::*;

#[allow(clippy::doc_markdown, reason = "help() shows plain text")]
#[pymethods]
impl Tensor {
    /// Bytes of an element.
    #[doc = help!(itemsize)]
    #[getter]
    fn itemsize(&self, py: Python<'_>) -> u64 {
        self.var.meta(py).dtype.size()
    }

    /// Bytes of all elements.
    #[doc = help!(nbytes)]
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> u64 {
        self.var.meta(py).bytes()
    }

    /// Number of elements of the storage before this tensor's first.
    #[doc = help!(storage_offset)]
    fn storage_offset(&self, py: Python<'_>) -> i64 {
        self.var.offset(py)
    }

    /// The transpose of a matrix, conjugated where it is complex.
    #[doc = help!(H)]
    #[getter(H)]
    fn adjoint<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let rank = slf.get().var.meta(slf.py()).dims.len();
        if rank != 0 && rank != 2 {
            return Err(errors::mistake(
                slf.py(),
                ErrorClass::Shape,
                format!(
                    "tensor.H is only supported on matrices (2-D tensors). Got {rank}-D tensor. For batches of matrices, \
                     consider using tensor.mH"
                ),
            ));
        }
        let turned = slf.getattr("T")?;
        if slf.get().var.meta(slf.py()).dtype.is_complex() {
            return turned.call_method0("conj");
        }
        Ok(turned)
    }
}
