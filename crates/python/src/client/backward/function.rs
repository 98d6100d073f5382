//! Users' functions (`gt.autograd.Function`) as nodes: recorded by [`Application`], and the call
//! of their backward.

use super::grad_fn::GradFn;
use super::gradient_sum::Gradients;
use super::{anomaly, evaluate};
use crate::client::emission::emit::cast;
use crate::client::gil_cell::GilCell;
use crate::client::session::{caller, errors, site};
use crate::client::tape::{self, Edge, Place, SharedNode, saved};
use crate::client::value::Tensor;
use crate::client::value::variable::{Input, Kept, NodeKind, SavedValue, UserFunction, Var};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Dims, Meta};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A function that is being applied: where the gradients of its arguments go, as it was before its forward ran.
#[pyclass(frozen, module = "gt._core")]
pub(crate) struct Application {
    inputs: GilCell<Vec<(Option<Edge>, Var)>>,
}

#[pymethods]
impl Application {
    #[new]
    fn new(py: Python<'_>, arguments: Vec<Option<Bound<'_, Tensor>>>) -> PyResult<Self> {
        let inputs = arguments.into_iter().flatten().map(|tensor| {
            let var = tensor.get().var.clone();
            Ok((var.edge(py)?, var))
        });
        Ok(Self { inputs: GilCell::new(inputs.collect::<PyResult<_>>()?) })
    }

    /// Records the function: the gradients of `outputs` go to `context`, None for an output without one, and `kept` has
    /// the values that it saves. Writes to `outputs` that are views are refused, if it `guards` them.
    fn record(
        &self,
        py: Python<'_>,
        name: String,
        context: Py<PyAny>,
        outputs: Vec<Option<Bound<'_, Tensor>>>,
        kept: Vec<Option<Bound<'_, Tensor>>>,
        guards: bool,
    ) -> PyResult<()> {
        let inputs = std::mem::take(&mut *self.inputs.get_mut(py));
        let place_of = |var: &Var| {
            let is = |tensor: &Option<Bound<'_, Tensor>>| {
                tensor.as_ref().is_some_and(|tensor| tensor.get().var.is(var))
            };
            let output = (0..).zip(&outputs).find(|(_, output)| is(output));
            let input = inputs.iter().position(|(_, input)| input.is(var));
            output.map(|(place, _)| Place::Output(place)).or(input.map(Place::Operand))
        };
        let (mut values, mut others, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for tensor in kept {
            let Some(var) = tensor.map(|tensor| tensor.get().var.clone()) else {
                places.push(None);
                continue;
            };
            let place = place_of(&var).unwrap_or_else(|| {
                others.push(var.clone());
                Place::Operand(inputs.len() + others.len() - 1)
            });
            let (value, watched) = (Kept::Value(var.value(py)?), var.watched(py));
            values.push(SavedValue { place, value, watched });
            places.push(Some(place));
        }
        let function = UserFunction { name, context, saved: places };
        let mut other_inputs = Vec::new();
        for other in others {
            other_inputs.push((other.edge(py)?, other));
        }
        let caller = caller::current(py);
        let node = tape::node(py, NodeKind::Function(Box::new(function)), &[], caller, |node| {
            for (edge, var) in inputs.into_iter().chain(other_inputs) {
                node.inputs.push(Input { edge, meta: Some(var.shared_meta(py)), scalar: None });
            }
            node.outputs.extend(outputs.iter().map(|output| match output {
                Some(output) => output.get().var.shared_meta(py),
                None => crate::client::value::metadata::SharedMeta::of(
                    py,
                    &Meta::new(gt_protocol::Dtype::DEFAULT, Dims::EMPTY),
                ),
            }));
            node.saved.inner_mut().get_or_insert_default().extend(values);
        });
        for (place, output) in (0_u16..).zip(&outputs) {
            if let Some(output) = output {
                let var = &output.get().var;
                var.set_edge(py, Some(Edge::Node(node.clone_ref(py), place.into())));
                if guards {
                    var.mark_of_function(py, place, outputs.len() > 1);
                }
            }
        }
        let packed = saved::pack(py, &node);
        tape::close(py, node);
        packed
    }
}

/// The gradients of a function's arguments, by its own backward.
pub(super) fn gradients(
    py: Python<'_>,
    node: &SharedNode,
    function: &UserFunction,
    grads: &[Option<Var>],
) -> PyResult<Gradients> {
    let tensors = grads
        .iter()
        .map(|grad| grad.as_ref().map(|grad| Tensor::wrap(py, grad.clone())).transpose())
        .collect::<PyResult<Vec<_>>>()?;
    let context = function.context.clone_ref(py);
    // Instructions that the backward emits carry the call sites of its own lines.
    let outer = site::set_override(None);
    let arguments = (GradFn::of(node).object(py)?, PyTuple::new(py, tensors)?);
    let result = context.bind(py).call_method1("_differentiate", arguments);
    site::set_override(outer);
    let mut given = Gradients::new();
    for ((position, input), object) in node.inputs.iter().enumerate().zip(result?.try_iter()?) {
        let object = object?;
        let Some(tensor) = object.extract::<Option<Bound<'_, Tensor>>>()? else { continue };
        let (Some(_), Some(meta)) = (&input.edge, &input.meta) else { continue };
        let grad = fit(py, tensor.get().var.clone(), meta, (node, position))?;
        if anomaly::is_on() {
            anomaly::check(py, node, position, &grad)?;
        }
        given.push((position, grad));
    }
    Ok(given)
}

/// The gradient in the argument's shape and dtype, where it can be summed to that.
fn fit(
    py: Python<'_>,
    grad: Var,
    wanted: &Meta,
    (node, position): (&SharedNode, usize),
) -> PyResult<Var> {
    let mut grad = grad;
    let given = grad.meta(py).dims;
    if given != wanted.dims {
        let added = given.len().checked_sub(wanted.dims.len());
        let fits = added.is_some_and(|added| {
            let pairs = given.iter().skip(added).zip(wanted.dims.iter());
            pairs.into_iter().all(|(given, wanted)| given == wanted || *wanted == 1)
        });
        if !fits {
            return Err(errors::mistake(
                py,
                ErrorClass::Shape,
                format!(
                    "Function {} returned an invalid gradient at index {position} - got {given} but expected shape \
                     compatible with {}",
                    node.name(),
                    wanted.dims
                ),
            ));
        }
        grad = evaluate::sum_to(py, grad, &wanted.dims)?;
    }
    if grad.meta(py).dtype != wanted.dtype {
        grad = cast(py, &grad, wanted.dtype)?;
    }
    Ok(grad)
}
