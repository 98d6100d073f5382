//! Placement of tensors: setting and querying layouts.

use super::tensor::Tensor;
use crate::client::emission::convert::DimsArg;
use crate::client::emission::emit::{self, Arg};
use crate::client::emission::read;
use crate::client::session::describe::DescribeKind;
use crate::client::session::{errors, runtime, site};
use crate::client::value::variable::Var;
use crate::client::views;
use gt_protocol::placement::{Layout, LayoutError, Placement};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dims, Op};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use smallvec::smallvec;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(distribute, module)?)?;
    module.add_function(wrap_pyfunction!(local_shard, module)?)?;
    module.add_function(wrap_pyfunction!(layout, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(session_counters, module)?)?;
    module.add_function(wrap_pyfunction!(numbered, module)?)?;
    module.add_function(wrap_pyfunction!(workers, module)?)?;
    module.add_function(wrap_pyfunction!(parse_layout, module)?)
}

/// Distributes a tensor over workers: by the text of a layout, or over all of them, sharded along
/// `dim` or replicated.
#[pyfunction]
#[pyo3(signature = (tensor, dim=None, layout=None))]
fn distribute<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, Tensor>,
    dim: Option<i64>,
    layout: Option<&str>,
) -> PyResult<Bound<'py, Tensor>> {
    let var = &tensor.get().var;
    let meta = var.meta(py);
    let rank = meta.dims.len();
    if let Some(text) = layout {
        // Only the form of a layout is checked where it is relative to the tensor's own: here the
        // tensor counts as having none.
        let nowhere = Layout::on(u32::MAX);
        Layout::parse_over(text, &meta.dims, &nowhere)
            .map_err(|error| mistake(py, "distribute", &error))?;
        let attrs = smallvec![Attr::Absent, Attr::Text(text.into())];
        return emit::tensor(py, Op::Distribute, &[Arg::Var(var)], attrs);
    }
    let dim = match dim {
        None => Attr::Absent,
        Some(_) if rank == 0 => {
            return Err(errors::mistake(
                py,
                ErrorClass::Index,
                "distribute: a 0-d tensor has no dimension to cut",
            ));
        }
        Some(dim) => {
            Attr::Int(i64::try_from(views::dim_of(py, dim, rank)?).expect("a rank is small"))
        }
    };
    emit::tensor(py, Op::Distribute, &[Arg::Var(var)], smallvec![dim, Attr::Absent])
}

/// The shard of a layout's member, of a tensor of that layout, as a tensor on that worker; nothing
/// is recorded.
#[pyfunction]
fn local_shard<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, Tensor>,
    layout: &str,
    member: i64,
) -> PyResult<Bound<'py, Tensor>> {
    let var = &tensor.get().var;
    let text = parsed(py, "local_shard", layout, &var.meta(py).dims)?.to_string();
    let attrs = smallvec![Attr::Text(text.into()), Attr::Int(member)];
    emit::tensor(py, Op::LocalShard, &[Arg::Var(var)], attrs)
}

/// The layout of a tensor: `shard(0)@[0,1]`. Asks the dispatcher.
#[pyfunction]
fn layout(tensor: &Bound<'_, Tensor>) -> PyResult<String> {
    asked(tensor, DescribeKind::Layout)
}

/// The reasons for a tensor's layout, and the transfers for it: one `name: text` a line. Asks the
/// dispatcher; source positions are added here.
#[pyfunction]
fn explain(tensor: &Bound<'_, Tensor>) -> PyResult<String> {
    let text = asked(tensor, DescribeKind::Explanation)?;
    let py = tensor.py();
    let lines: Vec<String> = text
        .lines()
        .filter_map(|line| match line.strip_prefix("site: ") {
            None => Some(line.to_owned()),
            Some(site) => {
                let site = site.parse().ok()?;
                let name = site::name(py, site)?;
                Some(format!("line: {name}"))
            }
        })
        .collect();
    Ok(lines.join("\n"))
}

fn asked(tensor: &Bound<'_, Tensor>, what: DescribeKind) -> PyResult<String> {
    let var: &Var = &tensor.get().var;
    read::describe(tensor.py(), Some(var), what)
}

/// Counters that the dispatcher keeps for this session; empty where there is no session. Asks the
/// dispatcher.
#[pyfunction]
fn session_counters(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    if runtime::with(py, |runtime| runtime.connection.is_none()) {
        return Ok(dict);
    }
    let text = read::describe(py, None, DescribeKind::Counters)?;
    for word in text.split(' ') {
        let pair = word.split_once('=');
        if let Some((name, value)) = pair.and_then(|(name, text)| Some((name, text.parse().ok()?)))
        {
            let value: u64 = value;
            dict.set_item(name, value)?;
        }
    }
    Ok(dict)
}

/// Number of instructions with results that this session has sent: the number of the next one.
#[pyfunction]
fn numbered(py: Python<'_>) -> u64 {
    runtime::with(py, |runtime| runtime.answers.numbered())
}

/// The indices of the session's workers, rising; starts the workers at the first call. Asks the
/// dispatcher.
#[pyfunction]
fn workers(py: Python<'_>) -> PyResult<Vec<u32>> {
    let text = read::describe(py, None, DescribeKind::Workers)?;
    Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// A placement as Python sees it: kind, dimension, reduction, and each member's intervals where
/// they are uneven.
type PlacementTuple = (&'static str, usize, String, Option<Vec<Vec<(i64, i64)>>>);

/// A layout as Python sees it.
type Parsed = (String, Vec<usize>, Vec<u32>, Vec<PlacementTuple>);

/// A layout's canonical text, the shape of its mesh, the mesh's members, and a placement for each dimension of it.
#[pyfunction]
fn parse_layout(py: Python<'_>, text: &str, shape: DimsArg) -> PyResult<Parsed> {
    let layout = parsed(py, "layout", text, &shape.0)?;
    let placements = layout.placements().iter().map(placed).collect();
    let mesh = layout.mesh();
    Ok((layout.to_string(), mesh.shape().to_vec(), mesh.members().to_vec(), placements))
}

fn placed(placement: &Placement) -> PlacementTuple {
    match placement {
        Placement::Replicate => ("replicate", 0, String::new(), None),
        Placement::Partial(reduce_op) => ("partial", 0, reduce_op.to_string(), None),
        Placement::Shard { dim, ranges } => {
            let intervals = || {
                ranges
                    .iter()
                    .map(|member| member.iter().map(|one| (one.start, one.end)).collect())
                    .collect()
            };
            let listed = (!ranges.is_even()).then(intervals);
            ("shard", *dim, String::new(), listed)
        }
    }
}

fn parsed(py: Python<'_>, what: &str, text: &str, dims: &Dims) -> PyResult<Layout> {
    Layout::parse(text, dims).map_err(|error| mistake(py, what, &error))
}

fn mistake(py: Python<'_>, what: &str, error: &LayoutError) -> PyErr {
    errors::mistake(py, ErrorClass::Value, format!("{what}: {error}"))
}
