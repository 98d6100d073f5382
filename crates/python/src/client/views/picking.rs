//! Indexing: the view that integers, slices, None and Ellipsis take, and the tensors that look
//! elements up in it.

use crate::client::emission::convert::{self, integer};
use crate::client::emission::emit::{Arg, cast};
use crate::client::emission::{read, upload};
use crate::client::session::errors;
use crate::client::value::Tensor;
use crate::client::value::variable::Var;
use crate::client::views::{self, index_numbers};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Dims, Dtype};
use pyo3::exceptions::{PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PySequence, PySlice, PyTuple};
use smallvec::SmallVec;
use std::ffi::CStr;

/// The basic part of an index, taken as a view, and the tensors that look elements up in its
/// dimensions.
pub(super) struct Picked {
    pub view: Var,
    pub tensors: SmallVec<[Option<Var>; 4]>,
    /// True if at least one of the tensors has indices and is not a mask.
    pub by_numbers: bool,
    /// Number of masks, and whether one of them was of bytes.
    pub masks: usize,
    pub of_bytes: bool,
}

impl Picked {
    pub fn is_lookup(&self) -> bool {
        self.tensors.iter().any(Option::is_some)
    }

    /// Returns true if a dimension that is not looked up is empty.
    pub fn takes_nothing_of(&self, dims: &Dims) -> bool {
        let whole = |dim: usize| self.tensors.get(dim).is_none_or(Option::is_none);
        dims.iter().enumerate().any(|(dim, &size)| size == 0 && whole(dim))
    }

    pub fn lookups(&self) -> impl Iterator<Item = Arg<'_>> {
        self.tensors.iter().map(|tensor| tensor.as_ref().map_or(Arg::Absent, Arg::Var))
    }
}

pub(super) fn pick(py: Python<'_>, var: &Var, index: &Bound<'_, PyAny>) -> PyResult<Picked> {
    let items = items_of(index)?;
    let rank = var.meta(py).dims.len();
    let mut used = 0;
    for item in &items {
        used += consumed(item)?;
    }
    if used > rank {
        return Err(errors::mistake(
            py,
            ErrorClass::Index,
            format!("too many indices for tensor of dimension {rank}"),
        ));
    }
    let mut picked = Picked {
        view: var.clone(),
        tensors: SmallVec::new(),
        by_numbers: false,
        masks: 0,
        of_bytes: false,
    };
    let mut dim = 0_usize;
    for (place, item) in items.iter().enumerate() {
        step(py, &mut picked, &mut dim, item, (rank - used, place))?;
    }
    // Trailing dimensions without an index are taken whole.
    while picked.tensors.last().is_some_and(Option::is_none) {
        picked.tensors.pop();
    }
    Ok(picked)
}

/// The items of an index, each for one or more dimensions.
fn items_of<'py>(index: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if let Ok(tuple) = index.cast::<PyTuple>() {
        return Ok(tuple.iter().collect());
    }
    let Ok(listed) = index.cast::<PyList>() else { return Ok(vec![index.clone()]) };
    if listed.len() >= LISTED_MAX || !listed.iter().any(|item| is_of_one_dimension(&item)) {
        return Ok(vec![index.clone()]);
    }
    let category = index.py().get_type::<PyUserWarning>();
    PyErr::warn(index.py(), &category, LISTED, 1)?;
    Ok(listed.iter().collect())
}

/// Length up to which `PyTorch` looks into a list: a longer one is a tensor.
const LISTED_MAX: usize = 32;
const LISTED: &CStr =
    c"Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq].";

/// Returns true if an item makes the list that contains it a tuple of indices, and not a tensor.
fn is_of_one_dimension(item: &Bound<'_, PyAny>) -> bool {
    item.is_none()
        || item.is_instance_of::<Tensor>()
        || item.is_instance_of::<PySlice>()
        || item.is_instance_of::<PyEllipsis>()
        || item.cast::<PySequence>().is_ok()
        || item.hasattr("__array__").unwrap_or(false) && item.len().is_ok()
}

/// Number of dimensions that an index item consumes.
fn consumed(item: &Bound<'_, PyAny>) -> PyResult<usize> {
    if item.is_none() || item.is_instance_of::<PyEllipsis>() || item.is_instance_of::<PyBool>() {
        return Ok(0);
    }
    if item.is_instance_of::<PyInt>() || item.is_instance_of::<PySlice>() {
        return Ok(1);
    }
    if let Ok(tensor) = item.cast::<Tensor>() {
        let meta = tensor.get().var.meta(item.py());
        return Ok(if is_mask(meta.dtype) { meta.dims.len() } else { 1 });
    }
    if is_mask_array(item)? {
        return item.getattr("ndim")?.extract();
    }
    Ok(1)
}

/// Returns true if tensors of this dtype are masks.
fn is_mask(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Bool | Dtype::U8)
}

/// Returns true if a numpy array is a mask, as tensors of bool and of bytes are.
fn is_mask_array(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    let numpy = item.py().import("numpy")?;
    if !item.is_instance(&numpy.getattr("ndarray")?)? {
        return Ok(false);
    }
    let dtype = item.getattr("dtype")?.str()?;
    Ok(dtype == "bool" || dtype == "uint8")
}

/// Returns true if a mask is of bytes.
fn is_of_bytes(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    match item.cast::<Tensor>() {
        Ok(tensor) => {
            let meta = tensor.get().var.meta(item.py());
            Ok(meta.dtype == Dtype::U8 && !meta.dims.is_empty())
        }
        Err(_) => Ok(is_mask_array(item)? && item.getattr("dtype")?.str()? == "uint8"),
    }
}

fn step(
    py: Python<'_>,
    picked: &mut Picked,
    dim: &mut usize,
    item: &Bound<'_, PyAny>,
    (whole, place): (usize, usize),
) -> PyResult<()> {
    let signed = i64::try_from(*dim).expect("a rank is small");
    if item.is_none() {
        picked.view = views::unsqueeze(py, &picked.view, signed)?;
        picked.tensors.push(None);
        *dim += 1;
    } else if item.is_instance_of::<PyEllipsis>() {
        for _ in 0..whole {
            picked.tensors.push(None);
            *dim += 1;
        }
    } else if item.is_instance_of::<PyBool>() {
        single(py, picked, dim, item.extract()?)?;
    } else if let Ok(slice) = item.cast::<PySlice>() {
        take_slice(py, picked, signed, slice)?;
        picked.tensors.push(None);
        *dim += 1;
    } else if let Some(index) = whole_number(item)? {
        picked.view = views::select(py, &picked.view, signed, index)
            .map_err(|error| out_of_range(py, picked, (*dim, place), index, error))?;
    } else {
        let tensor = index_tensor(item)?;
        let meta = tensor.meta(py);
        if meta.dtype == Dtype::Bool {
            picked.masks += 1;
            picked.of_bytes |= is_of_bytes(item)?;
            mask(py, picked, dim, &tensor)?;
        } else {
            picked.tensors.push(Some(tensor));
            picked.by_numbers = true;
            *dim += 1;
        }
    }
    Ok(())
}

fn out_of_range(
    py: Python<'_>,
    picked: &Picked,
    (dim, place): (usize, usize),
    index: i64,
    error: PyErr,
) -> PyErr {
    let dims = picked.view.meta(py).dims;
    match dims.get(dim) {
        Some(&size) if index >= size || index < -size => errors::mistake(
            py,
            ErrorClass::Index,
            format!("index {index} is out of bounds for dimension {place} with size {size}"),
        ),
        _ => error,
    }
}

fn take_slice(
    py: Python<'_>,
    picked: &mut Picked,
    dim: i64,
    slice: &Bound<'_, PySlice>,
) -> PyResult<()> {
    let bound = |name: &str| slice_bound(&slice.getattr(name)?);
    let (start, stop, step) = (bound("start")?, bound("stop")?, bound("step")?.unwrap_or(1));
    if step <= 0 {
        return Err(PyValueError::new_err("step must be greater than zero"));
    }
    let range = (dim, start.unwrap_or(0), stop.unwrap_or(i64::MAX), step);
    let dims = picked.view.meta(py).dims;
    let size = usize::try_from(dim).ok().and_then(|dim| dims.get(dim).copied());
    if range.1 == 0 && size.is_some_and(|size| size <= range.2) && step == 1 {
        return Ok(());
    }
    picked.view = views::slice(py, &picked.view, range)?;
    Ok(())
}

/// Reads one of the three numbers of a slice; Python's may be bools, and are clamped to 64 bits.
fn slice_bound(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if value.is_none() {
        return Ok(None);
    }
    if !value.is_instance_of::<PyInt>() {
        return integer(value).map(Some);
    }
    let end = if value.lt(0)? { i64::MIN } else { i64::MAX };
    Ok(Some(value.extract().unwrap_or(end)))
}

/// A Python or numpy integer, or the number in a 0-d tensor of integers.
fn whole_number(item: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if item.is_instance_of::<PyInt>() {
        return integer(item).map(Some);
    }
    if let Ok(tensor) = item.cast::<Tensor>() {
        return number_of(item.py(), &tensor.get().var);
    }
    if item.cast::<PyList>().is_ok() || item.cast::<PyTuple>().is_ok() {
        return Ok(None);
    }
    if convert::is_torch_tensor(item) {
        return Err(convert::refusal(item, "index"));
    }
    if item.hasattr("__index__")? && !item.hasattr("__array_interface__")? {
        return integer(item).map(Some);
    }
    if is_mask_array(item)? {
        return Ok(None);
    }
    if item.is_instance(&item.py().import("numpy")?.getattr("bool_")?)? {
        return Err(not_an_index(item)?);
    }
    if item.hasattr("ndim")? && item.getattr("ndim")?.extract::<usize>()? == 0 {
        return integer(&item.call_method0("item")?).map(Some);
    }
    Ok(None)
}

/// The number in a 0-d tensor of integers. It is read, as in `PyTorch`, because a view needs a
/// known index.
fn number_of(py: Python<'_>, var: &Var) -> PyResult<Option<i64>> {
    let meta = var.meta(py);
    if !meta.dims.is_empty() || is_mask(meta.dtype) || meta.dtype.is_differentiable() {
        return Ok(None);
    }
    read::item(py, var)?.extract(py).map(Some)
}

fn index_tensor(item: &Bound<'_, PyAny>) -> PyResult<Var> {
    let py = item.py();
    if let Ok(tensor) = item.cast::<Tensor>() {
        let var = tensor.get().var.clone();
        if var.meta(py).dtype.is_differentiable() {
            return Err(errors::mistake(
                py,
                ErrorClass::Index,
                "tensors used as indices must be long, int, byte or bool tensors",
            ));
        }
        return truth_values(py, var);
    }
    let array = py.import("numpy")?.call_method1("asarray", (item,))?;
    if array.getattr("size")?.extract::<usize>()? == 0 {
        let array = array.call_method1("astype", ("int64",))?;
        return Ok(upload::from_array(&array)?.get().var.clone());
    }
    let kind = array.getattr("dtype")?.getattr("kind")?.to_string();
    if kind == "U" || kind == "S" {
        return Err(PyTypeError::new_err("new(): invalid data type 'str'"));
    }
    if array.getattr("ndim")?.extract::<usize>()? == 0 && !matches!(kind.as_str(), "i" | "u" | "b")
    {
        return Err(not_an_index(item)?);
    }
    if is_mask_array(&array)? {
        return truth_values(py, upload::from_array(&array)?.get().var.clone());
    }
    let array = match kind.as_str() {
        "b" => array,
        "i" => array.call_method1("astype", ("int64",))?,
        _ => index_numbers::of(item)?,
    };
    Ok(upload::from_array(&array)?.get().var.clone())
}

/// Converts a mask of bytes to one of bool, with `PyTorch`'s warning; any other tensor is
/// unchanged.
fn truth_values(py: Python<'_>, var: Var) -> PyResult<Var> {
    let meta = var.meta(py);
    if meta.dtype != Dtype::U8 {
        return Ok(var);
    }
    if !meta.dims.is_empty() {
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), OF_BYTES, 1)?;
    }
    cast(py, &var, Dtype::Bool)
}

const OF_BYTES: &CStr =
    c"indexing with dtype gt.uint8 is now deprecated, please use a dtype gt.bool instead.";

fn not_an_index(item: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let class = item.get_type();
    let (module, name) = (class.module()?.to_string(), class.name()?.to_string());
    let type_name = if module == "builtins" { name } else { format!("{module}.{name}") };
    Ok(errors::mistake(
        item.py(),
        ErrorClass::Index,
        format!(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices \
             (got {type_name})"
        ),
    ))
}

/// Indexes with a single bool: adds a dimension of size 1 in front, of which the element is
/// selected or not.
fn single(py: Python<'_>, picked: &mut Picked, dim: &mut usize, chosen: bool) -> PyResult<()> {
    picked.view =
        views::unsqueeze(py, &picked.view, i64::try_from(*dim).expect("a rank is small"))?;
    let positions = py.import("numpy")?.call_method1("zeros", (usize::from(chosen), "int64"))?;
    picked.tensors.push(Some(upload::from_array(&positions)?.get().var.clone()));
    *dim += 1;
    Ok(())
}

/// Converts a bool mask to one index tensor for each dimension. The mask is read, because the
/// number of selected elements depends on its data.
fn mask(py: Python<'_>, picked: &mut Picked, dim: &mut usize, mask: &Var) -> PyResult<()> {
    let meta = mask.meta(py);
    if meta.dims.is_empty() {
        let chosen = read::item(py, mask)?.bind(py).is_truthy()?;
        return single(py, picked, dim, chosen);
    }
    let dims = picked.view.meta(py).dims;
    check_mask(py, &dims, *dim, &meta.dims)?;
    let bytes = read::bytes(py, mask)?;
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("frombuffer", (bytes, "bool"))?;
    let array = array.call_method1("reshape", (PyTuple::new(py, meta.dims.as_slice())?,))?;
    let found = numpy.call_method1("nonzero", (array,))?;
    for positions in found.try_iter()? {
        picked.tensors.push(Some(upload::from_array(&positions?)?.get().var.clone()));
        *dim += 1;
    }
    Ok(())
}

/// Checks that a mask has the sizes of the dimensions that it indexes, from `dim` on.
pub(crate) fn check_mask(py: Python<'_>, dims: &Dims, dim: usize, mask: &Dims) -> PyResult<()> {
    for (place, size) in mask.iter().enumerate() {
        if dims.get(dim + place) != Some(size) {
            return Err(errors::mistake(
                py,
                ErrorClass::Index,
                format!(
                    "The shape of the mask {mask} at index {place} does not match the shape of the indexed tensor \
                     {dims} at index {}",
                    dim + place
                ),
            ));
        }
    }
    Ok(())
}
