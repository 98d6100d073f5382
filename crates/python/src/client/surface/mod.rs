//! The functions of `gt._core`, and the function that fills the module.

mod attributes;
mod autocast;
pub(crate) mod call;
mod credentials;
mod elements;
mod error_keeper;
pub(crate) mod function;
mod generated_help;
pub(crate) mod generated_methods;
pub(crate) mod generated_operators;
mod grad;
pub(crate) mod history;
mod metadata;
pub(crate) mod methods;
pub(crate) mod placing;
pub(crate) mod properties;
mod published;
mod random;
mod region;
mod serialization;
mod session;
pub(crate) mod tensor;
pub(crate) mod trace;
pub(crate) mod update;
mod writing;

use crate::client::backward::function::Application;
use crate::client::backward::grad_fn::GradFn;
use crate::client::emission::{convert, default_float};
use crate::client::session::{caller, runtime, signal, site, spawn};
use crate::client::value::dtype::{self, PyDtype};
use gt_protocol::handshake::LEASE_SECONDS_MAX;
use gt_protocol::message::PUBLISHED_NAME_BYTES_MAX;
use pyo3::prelude::*;
use tensor::{Tensor, set_size_class};

/// Adds all functions and classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("LEASE_SECONDS_MAX", LEASE_SECONDS_MAX)?;
    module.add("PUBLISHED_NAME_BYTES_MAX", PUBLISHED_NAME_BYTES_MAX)?;
    module.add_class::<Tensor>()?;
    module.add_class::<PyDtype>()?;
    module.add_class::<GradFn>()?;
    module.add_class::<Application>()?;
    function::register(module)?;
    dtype::register(module)?;
    call::register(module)?;
    writing::register(module)?;
    elements::register(module)?;
    metadata::register(module)?;
    error_keeper::register(module)?;
    autocast::register(module)?;
    grad::register(module)?;
    random::register(module)?;
    region::register(module)?;
    credentials::register(module)?;
    session::register(module)?;
    placing::register(module)?;
    published::register(module)?;
    serialization::register(module)?;
    module.add_function(wrap_pyfunction!(signal::set_signal_variable, module)?)?;
    module.add_function(wrap_pyfunction!(signal::signal_new, module)?)?;
    module.add_function(wrap_pyfunction!(signal::signal_configure, module)?)?;
    module.add_function(wrap_pyfunction!(signal::set_upload_signal, module)?)?;
    module.add_function(wrap_pyfunction!(signal::signal_entered, module)?)?;
    module.add_function(wrap_pyfunction!(signal::signal_of_gradients, module)?)?;
    module.add_function(wrap_pyfunction!(caller::signal_left, module)?)?;
    module.add_function(wrap_pyfunction!(
        crate::client::emission::shown::show_instructions,
        module
    )?)?;
    module.add_function(wrap_pyfunction!(trace::parse_trace_line, module)?)?;
    module.add_function(wrap_pyfunction!(trace::print_tape, module)?)?;
    module.add_function(wrap_pyfunction!(configure, module)?)?;
    module.add_function(wrap_pyfunction!(convert::class_name, module)?)?;
    module.add_function(wrap_pyfunction!(default_float::set_default_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(default_float::get_default_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(update::sgd_step, module)?)?;
    module.add_function(wrap_pyfunction!(update::adamw_step, module)?)?;
    Ok(())
}

/// Gives the module its Python side: the class of shapes, and the folder of GT's own files.
#[pyfunction]
fn configure(py: Python<'_>, size_class: Py<PyAny>, package: String) {
    set_size_class(py, size_class);
    site::set_package(py, package);
    runtime::set_opener(py, spawn::open_default);
}
