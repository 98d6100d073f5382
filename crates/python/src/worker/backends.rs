//! Collectives that a backend of the kernels executes itself: requests to the backend and its
//! answers.

use super::attributes;
use gt_protocol::Instruction;
use gt_worker::{Backend, Collective, DirectReads, Pull, StridedRange, Turn};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

/// The backends that a worker's kernels have, in the order of [`Backend`].
#[derive(Debug, Default)]
pub struct CollectiveBackends {
    backends: [Option<CollectiveBackend>; 2],
}

#[derive(Debug)]
struct CollectiveBackend {
    domain: String,
    rendezvous: Py<PyAny>,
}

/// This worker's part in a collective; it keeps the values alive.
#[derive(Debug)]
pub struct Rendezvous {
    /// The backend's object; `None` where the backend cannot take part.
    object: Option<Py<PyAny>>,
    pub operand: Option<Py<PyAny>>,
    pub result: Option<Py<PyAny>>,
}

impl CollectiveBackends {
    /// Fetches the table `collective_backends` of a `gt.worker.backend.Backend`.
    pub fn new(kernels: &Bound<'_, PyAny>) -> PyResult<Self> {
        let table = kernels.getattr("collective_backends")?.cast_into::<PyDict>()?;
        let entry = |backend: Backend| -> PyResult<Option<CollectiveBackend>> {
            let Some(item) = table.get_item(backend.name())? else { return Ok(None) };
            let domain = item.getattr("domain")?.extract()?;
            Ok(Some(CollectiveBackend { domain, rendezvous: item.getattr("rendezvous")?.unbind() }))
        };
        Ok(Self { backends: [entry(Backend::Device)?, entry(Backend::Group)?] })
    }

    /// Each backend's domain: the group of workers that can take part with this one.
    pub fn domains(&self) -> [&str; 2] {
        self.backends.each_ref().map(|entry| entry.as_ref().map_or("", |one| one.domain.as_str()))
    }

    /// This worker's part in the collective, and its first payload, which is empty where the
    /// backend cannot take part.
    pub fn rendezvous(
        &self,
        py: Python<'_>,
        dtypes: &[Py<PyAny>],
        collective: &Collective<'_>,
        operand: Option<Py<PyAny>>,
        result: Option<Py<PyAny>>,
    ) -> PyResult<(Rendezvous, Vec<u8>)> {
        let place = match collective.backend {
            Backend::Device => 0,
            Backend::Group => 1,
        };
        let mut rendezvous = Rendezvous { object: None, operand, result };
        let Some(entry) = &self.backends[place] else { return Ok((rendezvous, Vec::new())) };
        let Instruction { op, attrs, .. } = collective.instruction;
        let attributes = PyDict::new(py);
        for (row, attr) in op.info().attrs.iter().zip(attrs) {
            attributes.set_item(row.name, attributes::object(py, row.kind, attr, dtypes)?)?;
        }
        let arguments = (
            op.info().name,
            attributes,
            collective.tag,
            collective.members.to_vec(),
            collective.me,
            rendezvous.operand.as_ref(),
            rendezvous.result.as_ref(),
        );
        let begun: Option<(Py<PyAny>, Vec<u8>)> =
            entry.rendezvous.bind(py).call1(arguments)?.extract()?;
        let Some((object, payload)) = begun else { return Ok((rendezvous, Vec::new())) };
        rendezvous.object = Some(object);
        Ok((rendezvous, payload))
    }
}

impl Rendezvous {
    pub fn negotiate(
        &self,
        py: Python<'_>,
        payloads: &[&[u8]],
        reads: Option<&DirectReads>,
    ) -> PyResult<Turn> {
        let Some(object) = &self.object else { return Ok(Turn::FallBack) };
        let payloads = PyList::new(py, payloads.iter().map(|one| PyBytes::new(py, one)))?;
        let reads = reads.map(|reads| described(py, reads)).transpose()?;
        let turn = object.bind(py).call_method1("negotiate", (payloads, reads))?;
        Ok(match turn.extract::<Option<(bool, Vec<u8>)>>()? {
            None => Turn::FallBack,
            Some((false, payload)) => Turn::Continue(payload),
            Some((true, payload)) => Turn::Done(payload),
        })
    }

    /// Returns true if the result is there, or never will be.
    pub fn is_over(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.object {
            Some(object) => object.bind(py).call_method0("is_over")?.extract(),
            None => Ok(true),
        }
    }

    pub fn lose(&self, py: Python<'_>, peer: u32) -> PyResult<()> {
        let Some(object) = &self.object else { return Ok(()) };
        object.bind(py).call_method1("lose", (peer,)).map(drop)
    }

    /// Falls back to messages for all members: a call that waits for its turn is withdrawn, so that
    /// it blocks no other.
    pub fn fall_back(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, &[])
    }

    /// The object that replaces the result, if there is one.
    pub fn finish(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(object) = &self.object else { return Ok(None) };
        let result = object.bind(py).call_method0("finish")?;
        Ok((!result.is_none()).then(|| result.unbind()))
    }

    pub fn end(&self, py: Python<'_>, payloads: &[Option<Vec<u8>>]) -> PyResult<()> {
        let Some(object) = &self.object else { return Ok(()) };
        let payloads = payloads.iter().map(|one| one.as_ref().map(|one| PyBytes::new(py, one)));
        object.bind(py).call_method1("end", (PyList::new(py, payloads)?,)).map(drop)
    }
}

/// The reads in the form of `gt.worker.collective_backend`: in elements.
fn described<'py>(py: Python<'py>, reads: &DirectReads) -> PyResult<Bound<'py, PyTuple>> {
    let size = usize::try_from(reads.dtype.size()).expect("an element has a few bytes");
    let range = |range: StridedRange| {
        let StridedRange { start, rows, run, stride } = range;
        (start / size, rows, run / size, stride / size)
    };
    let kept = reads.kept.map(|(from, to)| (range(from), range(to)));
    let reduction = reads.reduction.as_ref().map(|reduction| {
        let shards: Vec<_> = reduction.shards.iter().map(|&shard| range(shard)).collect();
        (reduction.reduce_op.name(), shards, range(reduction.to))
    });
    let pull = |pull: &Pull| (pull.place, pull.of_result, range(pull.from), range(pull.to));
    let pulls: Vec<_> = reads.pulls.iter().map(pull).collect();
    (kept, reduction, pulls, reads.shares_result).into_pyobject(py)
}
