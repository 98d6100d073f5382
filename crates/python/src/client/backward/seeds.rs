//! Seeds of a backward pass: the gradients of its roots.

use crate::client::emission::emit;
use crate::client::session::errors;
use crate::client::value::Tensor;
use crate::client::value::variable::Var;
use gt_protocol::Scalar;
use gt_protocol::rules::ErrorClass;
use pyo3::prelude::*;

/// The gradient that starts at `root`: a tensor as given, or a number for a root of one element.
pub(crate) fn seed<'py>(
    root: &Bound<'py, Tensor>,
    gradient: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, Tensor>> {
    let py = root.py();
    if let Ok(tensor) = gradient.cast::<Tensor>() {
        return Ok(tensor.clone());
    }
    let meta = root.get().var.meta(py);
    match gradient.extract::<f64>() {
        Ok(scale) if meta.elements() == 1 => {
            Tensor::wrap(py, emit::full(py, meta.dims, Scalar::Float(scale), meta.dtype)?)
        }
        Ok(_) => Err(errors::mistake(
            py,
            ErrorClass::Runtime,
            format!("backward: a number scales the gradient of one element only, not of {meta}"),
        )),
        Err(_) => Err(errors::mistake(
            py,
            ErrorClass::Type,
            format!(
                "gradients can be either Tensors, numbers or None, but got {}",
                gradient.get_type().name()?
            ),
        )),
    }
}

/// The default gradient: one, for a root of one element.
pub(super) fn ones_like(py: Python<'_>, root: &Var) -> PyResult<Var> {
    let meta = root.meta(py);
    if meta.elements() != 1 {
        return Err(errors::mistake(
            py,
            ErrorClass::Shape,
            "grad can be implicitly created only for scalar outputs",
        ));
    }
    if !meta.dtype.is_float() {
        let dtype = meta.dtype.torch_name();
        let text = format!(
            "grad can be implicitly created only for real scalar outputs but got torch.{dtype}"
        );
        return Err(errors::mistake(py, ErrorClass::Runtime, text));
    }
    emit::full_like(py, root, meta.dims, Scalar::Float(1.0), meta.dtype)
}

/// A given gradient, which has its root's shape.
pub(super) fn checked_seed(
    py: Python<'_>,
    position: usize,
    root: &Var,
    seed: &Var,
) -> PyResult<Var> {
    let (wanted, seed_dims) = (root.meta(py).dims, seed.meta(py).dims);
    if wanted == seed_dims {
        return Ok(seed.clone());
    }
    Err(errors::mistake(
        py,
        ErrorClass::Shape,
        format!(
            "Mismatch in shape: grad_output[{position}] has a shape of torch.Size({seed_dims}) and output[{position}] \
             has a shape of torch.Size({wanted})."
        ),
    ))
}
