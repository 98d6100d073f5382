//! The kernels of a backend, by operator: Python callables, fetched once.

use super::attributes::Attributes;
use gt_protocol::Op;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// A kernel that writes its result over an operand.
#[derive(Debug)]
pub struct InPlace {
    /// Bit mask of the operands that it overwrites.
    pub overwrites: u16,
    pub call: Py<PyAny>,
    /// True if it takes its two operands in the other order.
    pub swapped: bool,
    /// Kernel for a list of instructions with equal attributes.
    pub grouped: Option<Py<PyAny>>,
}

/// Kernels that execute one operator.
#[derive(Debug)]
pub struct OperatorKernel {
    pub call: Py<PyAny>,
    /// Kernel for a number as the first operand, which a tensor's method cannot take.
    pub number_first: Option<Py<PyAny>>,
    pub in_place: Vec<InPlace>,
    pub attributes: Attributes,
}

impl OperatorKernel {
    /// The kernel that overwrites operands in `reuse`, if there is one.
    #[inline]
    pub fn over(&self, reuse: u16) -> Option<&InPlace> {
        self.in_place.iter().find(|row| row.overwrites & !reuse == 0)
    }
}

/// Kernels by an operator's code: page, then index in the page.
#[derive(Debug)]
pub struct Kernels {
    by_code: Vec<Option<Box<OperatorKernel>>>,
}

impl Kernels {
    /// Fetches the tables `kernels`, `number_first`, `in_place` and `grouped` of a backend.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        let calls = backend.getattr("kernels")?.cast_into::<PyDict>()?;
        let number_first = backend.getattr("number_first")?.cast_into::<PyDict>()?;
        let in_place = backend.getattr("in_place")?.cast_into::<PyDict>()?;
        let grouped = backend.getattr("grouped")?.cast_into::<PyDict>()?;
        let mut by_code = Vec::new();
        for info in Op::table() {
            let Some(call) = calls.get_item(info.name)? else { continue };
            let code = usize::from(info.code);
            if code >= by_code.len() {
                by_code.resize_with(code + 1, || None);
            }
            let kernel = OperatorKernel {
                call: call.unbind(),
                number_first: number_first.get_item(info.name)?.map(Bound::unbind),
                in_place: in_place_kernels(
                    in_place.get_item(info.name)?,
                    grouped.get_item(info.name)?,
                )?,
                attributes: Attributes::default(),
            };
            by_code[code] = Some(Box::new(kernel));
        }
        Ok(Self { by_code })
    }

    #[inline]
    pub fn of(&self, op: Op) -> Option<&OperatorKernel> {
        self.by_code.get(usize::from(op.info().code))?.as_deref()
    }

    #[inline]
    pub fn of_mut(&mut self, op: Op) -> Option<&mut OperatorKernel> {
        self.by_code.get_mut(usize::from(op.info().code))?.as_deref_mut()
    }
}

fn in_place_kernels(
    listed: Option<Bound<'_, PyAny>>,
    grouped: Option<Bound<'_, PyAny>>,
) -> PyResult<Vec<InPlace>> {
    let Some(listed) = listed else { return Ok(Vec::new()) };
    let mut kernels = Vec::new();
    for row in listed.cast_into::<PyList>()? {
        let (overwrites, call, swapped) = row.extract::<(u16, Py<PyAny>, bool)>()?;
        let grouped = match &grouped {
            Some(by_operands) => by_operands.cast::<PyDict>()?.get_item(overwrites)?,
            None => None,
        };
        let grouped = grouped.map(Bound::unbind);
        kernels.push(InPlace { overwrites, call, swapped, grouped });
    }
    Ok(kernels)
}
