//! The worker's side of `gt._core`: the engine that calls Python kernels, and the loop of a worker process.

mod aten;
mod attributes;
mod backends;
mod borrowed;
mod connect;
mod engine;
mod execution_log;
mod faults;
mod fork_requests;
mod framed;
mod greeting;
mod idle;
mod kernel_call;
mod kernels;
mod machine;
mod memory;
mod payloads;
mod peers;
mod process;
mod program_steps;
mod redial;
mod slow_rows;
mod stream;
mod vectorcall;

use pyo3::prelude::*;

/// Adds the worker's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(engine::executing_op, module)?)?;
    module.add_function(wrap_pyfunction!(aten::offer_aten, module)?)?;
    module.add_function(wrap_pyfunction!(payloads::encode_device_buffers, module)?)?;
    module.add_function(wrap_pyfunction!(payloads::decode_device_buffers, module)?)?;
    module.add_function(wrap_pyfunction!(payloads::encode_device_trial, module)?)?;
    module.add_function(wrap_pyfunction!(payloads::decode_device_trial, module)?)?;
    module.add_function(wrap_pyfunction!(payloads::encode_device_event, module)?)?;
    module.add_function(wrap_pyfunction!(payloads::decode_device_event, module)?)?;
    module.add_function(wrap_pyfunction!(payloads::encode_group_payload, module)?)?;
    module.add_function(wrap_pyfunction!(payloads::decode_group_payload, module)?)?;
    module.add_function(wrap_pyfunction!(program_steps::program_steps, module)?)?;
    module.add_function(wrap_pyfunction!(program_steps::view_rows, module)?)?;
    module.add_class::<fork_requests::ForkRequests>()?;
    module.add_class::<fork_requests::ForkRequest>()?;
    module.add_function(wrap_pyfunction!(connect::run_on_socket, module)?)?;
    module.add_function(wrap_pyfunction!(process::run_on_descriptors, module)?)
}
