//! Attributes as Python objects, cached by operator: a repeated instruction makes no new ones.

use gt_protocol::{Attr, AttrKind, OpInfo, Scalar};
use gt_worker::same_attr;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple};
use smallvec::SmallVec;

/// Maximum number of attribute lists cached for one operator. A model's `reshape` has a dozen
/// sizes; an attribute that is new in every instruction (a step, a draw) only evicts the others.
const KEPT_MAX: usize = 16;

/// The Python arguments of one list of attributes.
#[derive(Debug)]
struct CachedAttributes {
    attrs: SmallVec<[Attr; 2]>,
    objects: Vec<Py<PyAny>>,
}

/// The cached attribute lists of one operator.
#[derive(Debug, Default)]
pub struct Attributes {
    kept: Vec<CachedAttributes>,
    oldest: usize,
}

impl Attributes {
    /// The attributes as Python objects, in the row's order.
    pub fn objects(
        &mut self,
        py: Python<'_>,
        info: &OpInfo,
        attrs: &[Attr],
        dtypes: &[Py<PyAny>],
    ) -> PyResult<&[Py<PyAny>]> {
        let place = match self.kept.iter().position(|kept| same(&kept.attrs, attrs)) {
            Some(place) => place,
            None => self.keep(converted(py, info, attrs, dtypes)?, attrs),
        };
        Ok(&self.kept[place].objects)
    }

    fn keep(&mut self, objects: Vec<Py<PyAny>>, attrs: &[Attr]) -> usize {
        let new = CachedAttributes { attrs: attrs.iter().cloned().collect(), objects };
        if self.kept.len() < KEPT_MAX {
            self.kept.push(new);
            return self.kept.len() - 1;
        }
        let place = self.oldest;
        self.oldest = (place + 1) % KEPT_MAX;
        self.kept[place] = new;
        place
    }
}

/// A number as a Python object.
pub fn scalar(py: Python<'_>, value: Scalar) -> Py<PyAny> {
    match value {
        Scalar::Bool(value) => PyBool::new(py, value).to_owned().into_any().unbind(),
        Scalar::Int(value) => match value.into_pyobject(py) {
            Ok(value) => value.into_any().unbind(),
        },
        Scalar::Float(value) => PyFloat::new(py, value).into_any().unbind(),
    }
}

fn converted(
    py: Python<'_>,
    info: &OpInfo,
    attrs: &[Attr],
    dtypes: &[Py<PyAny>],
) -> PyResult<Vec<Py<PyAny>>> {
    let rows = info.attrs.iter();
    rows.zip(attrs).map(|(row, attr)| object(py, row.kind, attr, dtypes)).collect()
}

/// One attribute as a Python object.
pub fn object(
    py: Python<'_>,
    kind: AttrKind,
    attr: &Attr,
    dtypes: &[Py<PyAny>],
) -> PyResult<Py<PyAny>> {
    Ok(match attr {
        Attr::Absent => py.None(),
        Attr::Bool(value) => scalar(py, Scalar::Bool(*value)),
        Attr::Int(value) => PyInt::new(py, *value).into_any().unbind(),
        Attr::Float(value) => scalar(py, Scalar::Float(*value)),
        Attr::Scalar(value) => scalar(py, *value),
        Attr::Dtype(dtype) => dtypes[usize::from(dtype.code())].clone_ref(py),
        Attr::Ints(dims) => PyTuple::new(py, dims.as_slice())?.into_any().unbind(),
        Attr::List(values) => PyTuple::new(py, &**values)?.into_any().unbind(),
        Attr::Choice(index) => {
            let AttrKind::Choice(words) = kind else { panic!("choice {index} for {kind:?}") };
            PyString::intern(py, words[usize::from(*index)]).into_any().unbind()
        }
        Attr::Text(text) => PyString::new(py, text).into_any().unbind(),
    })
}

fn same(left: &[Attr], right: &[Attr]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same_attr(left, right))
}
