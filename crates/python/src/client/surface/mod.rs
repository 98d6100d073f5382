//! The functions of `gt._core`, and what makes the module.

pub(crate) mod function;
pub(crate) mod generated_methods;
pub(crate) mod generated_operators;
pub(crate) mod history;
pub(crate) mod methods;
pub(crate) mod placing;
pub(crate) mod properties;
mod serialization;
pub(crate) mod tensor;
pub(crate) mod trace;
pub(crate) mod update;

use crate::client::emission::convert::{DimsArg, OperandArg, attr_of};
use crate::client::emission::emit::{self, Arg, cast};
use crate::client::emission::{default_float, read, upload};
use crate::client::session::{errors, runtime, signal, spawn};
use crate::client::value::dtype::{DtypeArg, PyDtype};
use crate::client::value::variable::Var;
use crate::client::views::in_place::{assign, fill};
use crate::client::{backward, tape, views};
use gt_protocol::message::Stats;
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Op};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::{SmallVec, smallvec};
use std::time::Duration;
use tensor::{Tensor, as_arg, set_size_class};

/// Fills the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Tensor>()?;
    module.add_class::<PyDtype>()?;
    module.add_class::<backward::GradFn>()?;
    function::register(module)?;
    crate::client::value::dtype::register(module)?;
    // numpy leaves `array + tensor` to us
    py.get_type::<Tensor>().setattr("__array_ufunc__", py.None())?;
    module.add_function(wrap_pyfunction!(call, module)?)?;
    module.add_function(wrap_pyfunction!(assign_, module)?)?;
    module.add_function(wrap_pyfunction!(fill_, module)?)?;
    module.add_function(wrap_pyfunction!(check_writable, module)?)?;
    module.add_function(wrap_pyfunction!(value_before, module)?)?;
    module.add_function(wrap_pyfunction!(mark_multiple_views, module)?)?;
    module.add_function(wrap_pyfunction!(apply_in_place, module)?)?;
    module.add_function(wrap_pyfunction!(from_numpy_copy, module)?)?;
    module.add_function(wrap_pyfunction!(from_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(read_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(is_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(set_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(grad, module)?)?;
    module.add_function(wrap_pyfunction!(next_draw, module)?)?;
    module.add_function(wrap_pyfunction!(manual_seed, module)?)?;
    module.add_function(wrap_pyfunction!(rng_state, module)?)?;
    module.add_function(wrap_pyfunction!(set_rng_state, module)?)?;
    module.add_function(wrap_pyfunction!(init, module)?)?;
    module.add_function(wrap_pyfunction!(connect, module)?)?;
    module.add_function(wrap_pyfunction!(serve, module)?)?;
    module.add_function(wrap_pyfunction!(disconnect, module)?)?;
    module.add_function(wrap_pyfunction!(synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(is_connected, module)?)?;
    module.add_function(wrap_pyfunction!(describe, module)?)?;
    module.add_function(wrap_pyfunction!(gpu_workers, module)?)?;
    module.add_function(wrap_pyfunction!(signal::set_signal_variable, module)?)?;
    module.add_function(wrap_pyfunction!(signal::signal_new, module)?)?;
    module.add_function(wrap_pyfunction!(signal::signal_configure, module)?)?;
    module.add_function(wrap_pyfunction!(signal::set_upload_signal, module)?)?;
    module.add_function(wrap_pyfunction!(signal::signal_entered, module)?)?;
    module.add_function(wrap_pyfunction!(crate::client::session::caller::signal_left, module)?)?;
    module.add_function(wrap_pyfunction!(has_begun, module)?)?;
    module.add_function(wrap_pyfunction!(trace::parse_trace_line, module)?)?;
    module.add_function(wrap_pyfunction!(stats, module)?)?;
    module.add_function(wrap_pyfunction!(worker_stats, module)?)?;
    module.add_function(wrap_pyfunction!(unread_failures, module)?)?;
    module.add_function(wrap_pyfunction!(trace::print_tape, module)?)?;
    module.add_function(wrap_pyfunction!(configure, module)?)?;
    module.add_function(wrap_pyfunction!(default_float::set_default_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(default_float::get_default_dtype, module)?)?;
    placing::register(module)?;
    serialization::register(module)?;
    module.add_function(wrap_pyfunction!(op_table, module)?)?;
    module.add_function(wrap_pyfunction!(update::sgd_step, module)?)?;
    module.add_function(wrap_pyfunction!(update::adamw_step, module)?)?;
    Ok(())
}

/// Tells the module about its Python side: the class of shapes, and where GT's own files are.
#[pyfunction]
fn configure(py: Python<'_>, size_class: Py<PyAny>, package: String) {
    set_size_class(py, size_class);
    crate::client::session::site::set_package(py, package);
    runtime::set_opener(py, spawn::open_default);
}

/// Emits any operator of the table by its name.
#[pyfunction]
#[pyo3(signature = (name, *operands, **attrs))]
fn call<'py>(
    py: Python<'py>,
    name: &str,
    operands: &Bound<'py, PyTuple>,
    attrs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let op = Op::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("{name} is not in the instruction table")))?;
    let info = op.info();
    let mut given: SmallVec<[OperandArg<'py>; 4]> = SmallVec::new();
    for object in operands {
        given.push(OperandArg::required(&object, name)?);
    }
    while given.len() < info.fixed_operands() {
        given.push(OperandArg::Absent);
    }
    let mut values: SmallVec<[Attr; 2]> = SmallVec::new();
    let mut used = 0;
    for row in info.attrs {
        let value = attrs.map(|attrs| attrs.get_item(row.name)).transpose()?.flatten();
        used += usize::from(value.is_some());
        let value = value.map_or(Ok(Attr::Absent), |value| attr_of(&value, row))?;
        if value == Attr::Absent && !row.optional {
            return Err(PyTypeError::new_err(format!(
                "{name}() needs the attribute {:?}",
                row.name
            )));
        }
        values.push(value);
    }
    if attrs.map_or(0, PyDictMethods::len) != used {
        return Err(PyTypeError::new_err(format!(
            "{name}() got an attribute that its row does not have"
        )));
    }
    if views::is_view(op)
        && let Some(OperandArg::Tensor(tensor)) = given.first()
    {
        let var = views::take(py, &tensor.get().var, op, values)?;
        return Ok(Tensor::wrap(py, var)?.into_any());
    }
    let args: SmallVec<[Arg<'_>; 4]> = given.iter().map(as_arg).collect();
    results(py, emit::emit(py, op, &args, values)?)
}

/// One tensor, or a tuple of several.
pub(crate) fn results(py: Python<'_>, mut vars: emit::Vars) -> PyResult<Bound<'_, PyAny>> {
    if vars.len() == 1 {
        return Ok(Tensor::wrap(py, vars.remove(0))?.into_any());
    }
    let tensors: Vec<Bound<'_, Tensor>> =
        vars.into_iter().map(|var| Tensor::wrap(py, var)).collect::<PyResult<_>>()?;
    Ok(PyTuple::new(py, tensors)?.into_any())
}

/// Writes `value` (broadcast and cast) into `target`, with PyTorch's rules of aliasing, versions and leaves.
#[pyfunction]
#[pyo3(signature = (target, value, computed=false))]
fn assign_<'py>(
    py: Python<'py>,
    target: &Bound<'py, Tensor>,
    value: &Bound<'py, Tensor>,
    computed: bool,
) -> PyResult<Bound<'py, Tensor>> {
    let (var, value): (&Var, &Var) = (&target.get().var, &value.get().var);
    var.check_writable(py, value.requires_grad(py))?;
    let wanted = var.meta(py);
    let mut new = value.clone();
    if new.meta(py).dims != wanted.dims {
        new = views::take(py, &new, Op::Expand, smallvec![Attr::Ints(wanted.dims)])?;
    }
    if !var.is_same_data(py, value) {
        var.check_overlap(py, &[Arg::Var(value)])?;
    }
    if new.meta(py).dtype != wanted.dtype {
        new = cast(py, &new, wanted.dtype)?;
    }
    assign(py, var, new, computed)?;
    Ok(target.clone())
}

/// Raises what a write in place of `target` raises before its value is computed from `operands` of any type.
#[pyfunction]
#[pyo3(signature = (target, *operands))]
fn check_writable(target: &Bound<'_, Tensor>, operands: &Bound<'_, PyTuple>) -> PyResult<()> {
    let (py, var) = (target.py(), &target.get().var);
    let tensors: Vec<Bound<'_, Tensor>> =
        operands.iter().filter_map(|operand| operand.cast_into::<Tensor>().ok()).collect();
    var.check_writable(py, tensors.iter().any(|tensor| tensor.get().var.requires_grad(py)))?;
    let others: Vec<Arg<'_>> = tensors.iter().map(|tensor| Arg::Var(&tensor.get().var)).collect();
    var.check_overlap(py, &others)
}

/// The value of `target` under a name of its own where the tape may save it: a write that follows is no change of that.
#[pyfunction]
fn value_before<'py>(target: &Bound<'py, Tensor>) -> PyResult<Bound<'py, Tensor>> {
    let (py, var) = (target.py(), &target.get().var);
    match crate::client::views::in_place::before_write(py, var, false)? {
        Some(before) => Tensor::wrap(py, before),
        None => Ok(target.clone()),
    }
}

/// Every element of `target` becomes `value`, a number or a 0-d tensor.
#[pyfunction]
fn fill_<'py>(
    py: Python<'py>,
    target: &Bound<'py, Tensor>,
    value: OperandArg<'py>,
) -> PyResult<Bound<'py, Tensor>> {
    fill(py, &target.get().var, &value)?;
    Ok(target.clone())
}

/// Says that these tensors, views all, are the results of one `function` ("Split", "Unbind").
#[pyfunction]
fn mark_multiple_views(py: Python<'_>, views: Vec<Bound<'_, Tensor>>, function: &str) {
    let function = if function == "Unbind" { "Unbind" } else { "Split" };
    for (place, view) in (0..).zip(&views) {
        view.get().var.mark_piece(py, place, function);
    }
}

/// `x.op_(…)`: emits the operator on x and writes the result into x; x's buffer may be used for it.
#[pyfunction]
#[pyo3(signature = (name, target, *operands, **attrs))]
fn apply_in_place<'py>(
    py: Python<'py>,
    name: &str,
    target: &Bound<'py, Tensor>,
    operands: &Bound<'py, PyTuple>,
    attrs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, Tensor>> {
    let op = Op::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("{name} is not in the instruction table")))?;
    let mut given: SmallVec<[OperandArg<'py>; 4]> = SmallVec::new();
    for object in operands {
        given.push(OperandArg::required(&object, name)?);
    }
    while given.len() + 1 < op.info().fixed_operands() {
        given.push(OperandArg::Absent);
    }
    let mut values: SmallVec<[Attr; 2]> = SmallVec::new();
    for row in op.info().attrs {
        let value = attrs.map(|attrs| attrs.get_item(row.name)).transpose()?.flatten();
        values.push(value.map_or(Ok(Attr::Absent), |value| attr_of(&value, row))?);
    }
    let args: SmallVec<[Arg<'_>; 4]> = given.iter().map(as_arg).collect();
    crate::client::views::in_place::write_result(target.get(), py, op, &args, values)?;
    Ok(target.clone())
}

/// A tensor with a copy of a numpy array's values.
#[pyfunction]
#[pyo3(signature = (array, dtype=None, requires_grad=false))]
fn from_numpy_copy<'py>(
    array: &Bound<'py, PyAny>,
    dtype: Option<DtypeArg>,
    requires_grad: bool,
) -> PyResult<Bound<'py, Tensor>> {
    let py = array.py();
    let tensor = upload::from_array(array)?;
    let tensor = match dtype {
        Some(dtype) if tensor.get().var.meta(py).dtype != dtype.0 => {
            let before = tape::set_grad_enabled(false);
            let converted = cast(py, &tensor.get().var, dtype.0);
            tape::set_grad_enabled(before);
            Tensor::wrap(py, converted?)?
        }
        Some(_) | None => tensor,
    };
    tensor.get().var.set_requires_grad(py, requires_grad)?;
    Ok(tensor)
}

/// A tensor from contiguous row-major bytes.
#[pyfunction]
#[pyo3(signature = (buffer, shape, dtype, requires_grad=false))]
fn from_bytes<'py>(
    buffer: &Bound<'py, PyAny>,
    shape: DimsArg,
    dtype: DtypeArg,
    requires_grad: bool,
) -> PyResult<Bound<'py, Tensor>> {
    let tensor = upload::from_buffer(buffer, shape.0, dtype.0)?;
    tensor.get().var.set_requires_grad(buffer.py(), requires_grad)?;
    Ok(tensor)
}

/// Waits for a tensor and returns its elements, contiguous and row-major, as a numpy array of bytes.
#[pyfunction]
fn read_bytes<'py>(tensor: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    read::bytes(tensor.py(), &tensor.get().var)
}

#[pyfunction]
fn is_grad_enabled() -> bool {
    tape::grad_enabled()
}

/// Sets this thread's grad mode; returns the one before.
#[pyfunction]
fn set_grad_enabled(enabled: bool) -> bool {
    tape::set_grad_enabled(enabled)
}

/// Gradients of `outputs` for `inputs`, None where they do not depend on one.
#[pyfunction]
fn grad<'py>(
    py: Python<'py>,
    outputs: Vec<Bound<'py, Tensor>>,
    grad_outputs: Vec<Option<Bound<'py, Tensor>>>,
    inputs: Vec<Bound<'py, Tensor>>,
    retain_graph: bool,
    create_graph: bool,
) -> PyResult<Vec<Option<Bound<'py, Tensor>>>> {
    let roots: Vec<(Var, Option<Var>)> = outputs
        .iter()
        .enumerate()
        .map(|(place, output)| {
            let seed = grad_outputs.get(place).and_then(Option::as_ref);
            (output.get().var.clone(), seed.map(|seed| seed.get().var.clone()))
        })
        .collect();
    let targets: Vec<Var> = inputs.iter().map(|input| input.get().var.clone()).collect();
    backward::pass(py, &roots, &targets, retain_graph, create_graph)?
        .into_iter()
        .map(|found| found.map(|var| Tensor::wrap(py, var)).transpose())
        .collect()
}

/// The seed and the first of `n` draws of the default generator.
#[pyfunction]
#[pyo3(signature = (n=1))]
fn next_draw(py: Python<'_>, n: i64) -> (i64, i64) {
    runtime::with(py, |runtime| {
        let generator = runtime.generator();
        (generator.seed, generator.advance(n))
    })
}

#[pyfunction]
fn manual_seed(py: Python<'_>, seed: i64) {
    set_rng_state(py, seed, 0);
}

/// Seed and next draw.
#[pyfunction]
fn rng_state(py: Python<'_>) -> (i64, i64) {
    runtime::with(py, |runtime| {
        let generator = runtime.generator();
        (generator.seed, generator.draw)
    })
}

#[pyfunction]
fn set_rng_state(py: Python<'_>, seed: i64, draw: i64) {
    runtime::with(py, |runtime| {
        *runtime.generator() = crate::client::session::generator::Generator { seed, draw }
    });
}

/// Starts the workers now instead of at the first operation; returns at once.
#[pyfunction]
fn init(py: Python<'_>) -> PyResult<()> {
    runtime::prepare(py)
}

/// Connects to a dispatcher process; tensors of an earlier session are void from here on.
#[pyfunction]
#[pyo3(signature = (address, token=None, verbose=false, ring=true, worker_seconds=None))]
fn connect(
    py: Python<'_>,
    address: String,
    token: Option<String>,
    verbose: bool,
    ring: bool,
    worker_seconds: Option<f64>,
) -> PyResult<()> {
    let hope = match worker_seconds.map(Duration::try_from_secs_f64) {
        None => runtime::WORKER_WAIT,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => {
            let text = "connect: worker_seconds must be a number of seconds from 0 on";
            return Err(errors::mistake(py, ErrorClass::Value, text));
        }
    };
    let connection =
        py.detach(|| crate::client::connection::dial::dial(&address, token.as_deref(), ring));
    let connection = connection.map_err(|error| errors::unreachable(py, &error.to_string()))?;
    if verbose {
        errors::announce(py, &connection.describe())?;
    }
    runtime::install(py, connection, true, Some(hope));
    Ok(())
}

/// The dispatcher program: runs until SIGINT or SIGTERM, returns the exit code.
#[pyfunction]
fn serve(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| gt_server::main(arguments))
}

#[pyfunction]
fn disconnect(py: Python<'_>) {
    runtime::disconnect(py);
}

/// Waits until everything emitted has run; raises a failure that nobody has read.
#[pyfunction]
fn synchronize(py: Python<'_>) -> PyResult<()> {
    read::synchronize(py)
}

#[pyfunction]
fn is_connected(py: Python<'_>) -> bool {
    runtime::with(py, |runtime| runtime.connection.is_some())
}

/// Where this client's instructions go, for people.
#[pyfunction]
fn describe(py: Python<'_>) -> Option<String> {
    runtime::with(py, |runtime| runtime.connection.as_ref().map(|connection| connection.describe()))
}

/// How many workers the embedded dispatcher starts; before the first operation only.
#[pyfunction]
fn gpu_workers(py: Python<'_>, count: u32) -> PyResult<()> {
    spawn::choose_workers(py, count)
}

/// Counters of the session, and where the dispatcher is part of this program, of the dispatcher.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let counters = runtime::with(py, |runtime| {
        runtime.pump();
        runtime.flush(py);
        let own = runtime.own_counters(py);
        let told = runtime.connection.as_ref().map(|connection| connection.counters());
        told.map(|told| own.into_iter().chain(told).collect::<Vec<_>>()).unwrap_or_default()
    });
    let dict = PyDict::new(py);
    for (name, value) in counters {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// Counters of each worker, after everything emitted so far has run.
#[pyfunction]
fn worker_stats(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let mut rows = Vec::new();
    for (worker, Stats { values, bytes, bytes_peak, executed, .. }) in read::worker_stats(py)? {
        let dict = PyDict::new(py);
        dict.set_item("worker", worker)?;
        dict.set_item("values", values)?;
        dict.set_item("bytes", bytes)?;
        dict.set_item("bytes_peak", bytes_peak)?;
        dict.set_item("executed", executed)?;
        rows.push(dict);
    }
    Ok(rows)
}

/// Whether the session's first operation has been made.
#[pyfunction]
fn has_begun(py: Python<'_>) -> bool {
    runtime::has_begun(py)
}

/// Texts of failures that nobody has read.
#[pyfunction]
fn unread_failures(py: Python<'_>) -> Vec<String> {
    if runtime::with(py, |runtime| runtime.connection.is_none()) {
        return Vec::new();
    }
    let (failures, more) = runtime::unread(py);
    let mut texts: Vec<String> =
        failures.iter().map(|failed| errors::describe(py, failed)).collect();
    if more > 0 {
        texts.insert(0, format!("{more} earlier ones, whose texts were not kept"));
    }
    texts
}

/// A row as Python sees it.
type Row = (&'static str, String, Vec<&'static str>, Vec<&'static str>, u8);

/// The instruction table: (name, family, operands, attributes, outputs) of each row.
#[pyfunction]
fn op_table() -> Vec<Row> {
    Op::table()
        .iter()
        .map(|info| {
            (
                info.name,
                format!("{:?}", info.family).to_lowercase(),
                info.operands.iter().map(|operand| operand.name).collect(),
                info.attrs.iter().map(|attr| attr.name).collect(),
                info.outputs,
            )
        })
        .collect()
}
