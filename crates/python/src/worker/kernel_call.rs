//! One instruction as one call of its kernel: operands and attributes as Python's arguments.

use super::aten::TensorValue;
use super::attributes::scalar;
use super::kernels::OperatorKernel;
use super::vectorcall::Vectorcaller;
use gt_protocol::{Family, Instruction};
use gt_worker::{EngineOperand, Follower, Values};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use smallvec::SmallVec;
use std::iter::once;

/// Calls the kernel, in the variant that overwrites the operands in `reuse` if there is one.
pub fn run(
    py: Python<'_>,
    caller: Vectorcaller,
    kernel: &mut OperatorKernel,
    dtypes: &[Py<PyAny>],
    instruction: &Instruction<'_>,
    operands: &[EngineOperand<'_, TensorValue>],
    reuse: u16,
) -> PyResult<Values<TensorValue>> {
    let info = instruction.op.info();
    let mut arguments = Arguments::default();
    let fixed = info.fixed_operands().min(operands.len());
    let (single, listed) = operands.split_at(fixed);
    for operand in single {
        arguments.push(py, operand);
    }
    if info.has_list() {
        arguments.push_made(list(py, listed)?);
    }
    if !info.attrs.is_empty() {
        let objects = kernel.attributes.objects(py, info, &instruction.attrs, dtypes)?;
        arguments.pointers.extend(objects.iter().map(Py::as_ptr));
    }
    let mut call = &kernel.call;
    let number_first = matches!(operands.first(), Some(EngineOperand::Scalar(_)));
    if let (true, Family::Elementwise, Some(other)) =
        (number_first, info.family, &kernel.number_first)
    {
        call = other;
    }
    if reuse != 0
        && let Some(row) = kernel.over(reuse)
    {
        call = &row.call;
        if row.swapped {
            arguments.pointers.swap(0, 1);
        }
    }
    let result = caller.call(py, call, &arguments.pointers)?;
    if info.outputs == 1 {
        return Ok(Values::from_iter([TensorValue::from(result)]));
    }
    let results = result.bind(py).cast::<PyTuple>()?;
    Ok(results.iter().map(|one| TensorValue::from(one.unbind())).collect())
}

/// Calls the kernel for several instructions like this one, whose operands follow one another, in
/// the variant that overwrites operands in `reuse`; `None` where there is no such kernel.
pub fn run_group(
    py: Python<'_>,
    kernel: &mut OperatorKernel,
    dtypes: &[Py<PyAny>],
    instruction: &Instruction<'_>,
    operands: &[EngineOperand<'_, TensorValue>],
    reuse: u16,
) -> PyResult<Option<Vec<Values<TensorValue>>>> {
    let Some(call) = kernel.over(reuse).and_then(|row| row.grouped.as_ref()) else {
        return Ok(None);
    };
    let call = call.clone_ref(py);
    let members: Vec<_> = operands
        .chunks_exact(instruction.operands.len())
        .map(|member| PyTuple::new(py, member.iter().map(|operand| object(py, operand))))
        .collect::<PyResult<_>>()?;
    let mut arguments = vec![PyList::new(py, members)?.into_any().unbind()];
    let info = instruction.op.info();
    let attributes = kernel.attributes.objects(py, info, &instruction.attrs, dtypes)?;
    arguments.extend(attributes.iter().map(|one| one.clone_ref(py)));
    let results = call.call1(py, PyTuple::new(py, arguments)?)?;
    let results = results.bind(py).cast::<PyList>()?.iter().map(|member| {
        let member = member.cast_into::<PyTuple>()?;
        Ok(member.iter().map(|one| TensorValue::from(one.unbind())).collect())
    });
    results.collect::<PyResult<_>>().map(Some)
}

/// Calls a backend's `chain` with an instruction and its followers, each as (row, operands); an
/// absent operand is the result of the step before. Returns how many of the followers have run, and
/// the last one's result; `None` where nothing has run.
pub fn run_chain(
    py: Python<'_>,
    chain: &Py<PyAny>,
    (first, operands): (&Instruction<'_>, &[EngineOperand<'_, TensorValue>]),
    reuse: u16,
    followers: &[Follower<'_, TensorValue>],
) -> PyResult<Option<(usize, TensorValue)>> {
    let rest = followers.iter().map(|one| (one.instruction.op, &*one.operands));
    let steps = once((first.op, operands)).chain(rest).map(|(op, operands)| {
        let operands = operands.iter().map(|operand| object(py, operand));
        Ok((op.info().name, PyTuple::new(py, operands)?))
    });
    let steps = PyList::new(py, steps.collect::<PyResult<Vec<_>>>()?)?;
    let made: Option<(usize, Py<PyAny>)> = chain.call1(py, (steps, reuse))?.extract(py)?;
    Ok(made.map(|(joined, value)| (joined, TensorValue::from(value))))
}

/// The arguments of a call: borrowed pointers, and the objects that were made for the call.
#[derive(Default)]
struct Arguments {
    pointers: SmallVec<[*mut ffi::PyObject; 8]>,
    made: SmallVec<[Py<PyAny>; 2]>,
}

impl Arguments {
    fn push(&mut self, py: Python<'_>, operand: &EngineOperand<'_, TensorValue>) {
        match operand {
            EngineOperand::Absent => self.push_made(py.None()),
            EngineOperand::Value(value) => self.pointers.push(value.object(py).as_ptr()),
            EngineOperand::Scalar(value) => self.push_made(scalar(py, *value)),
        }
    }

    fn push_made(&mut self, object: Py<PyAny>) {
        self.pointers.push(object.as_ptr());
        self.made.push(object);
    }
}

fn list(py: Python<'_>, listed: &[EngineOperand<'_, TensorValue>]) -> PyResult<Py<PyAny>> {
    let objects = listed.iter().map(|operand| object(py, operand));
    Ok(PyList::new(py, objects.collect::<Vec<_>>())?.into_any().unbind())
}

fn object(py: Python<'_>, operand: &EngineOperand<'_, TensorValue>) -> Py<PyAny> {
    match operand {
        EngineOperand::Absent => py.None(),
        EngineOperand::Value(value) => value.object(py).clone_ref(py),
        EngineOperand::Scalar(value) => scalar(py, *value),
    }
}
