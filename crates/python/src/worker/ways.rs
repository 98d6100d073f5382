//! Collectives that a backend moves itself: what it is told of them, and what it answers.

use super::attributes;
use gt_protocol::Instruction;
use gt_worker::{Meeting, ReduceOp, StridedRange, Turn, Way, Work};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

/// A backend's ways, in the order of [`Way`].
#[derive(Debug, Default)]
pub struct Ways {
    ways: [Option<Offer>; 2],
}

#[derive(Debug)]
struct Offer {
    domain: String,
    offer: Py<PyAny>,
}

/// Our part in a collective, with the values that it keeps.
#[derive(Debug)]
pub struct Joint {
    /// The backend's; none where it cannot go this way.
    object: Option<Py<PyAny>>,
    /// It is asked whether it is over.
    is_polled: bool,
    pub operand: Option<Py<PyAny>>,
    pub result: Option<Py<PyAny>>,
}

impl Ways {
    /// Fetches the table `ways` of a backend.
    pub fn new(backend: &Bound<'_, PyAny>) -> PyResult<Self> {
        let table = backend.getattr("ways")?.cast_into::<PyDict>()?;
        let way = |way: Way| -> PyResult<Option<Offer>> {
            let Some(found) = table.get_item(way.name())? else { return Ok(None) };
            let domain = found.getattr("domain")?.extract()?;
            Ok(Some(Offer { domain, offer: found.getattr("offer")?.unbind() }))
        };
        Ok(Self { ways: [way(Way::Device)?, way(Way::Group)?] })
    }

    /// Who can go each way with us.
    pub fn domains(&self) -> [&str; 2] {
        self.ways.each_ref().map(|way| way.as_ref().map_or("", |way| way.domain.as_str()))
    }

    /// The backend's part and its first word, which is empty where it cannot be.
    pub fn offer(
        &self,
        py: Python<'_>,
        dtypes: &[Py<PyAny>],
        meeting: &Meeting<'_>,
        operand: Option<Py<PyAny>>,
        result: Option<Py<PyAny>>,
    ) -> PyResult<(Joint, Vec<u8>)> {
        let place = match meeting.way {
            Way::Device => 0,
            Way::Group => 1,
        };
        let mut joint =
            Joint { object: None, is_polled: meeting.way == Way::Group, operand, result };
        let Some(way) = self.ways.get(place).and_then(Option::as_ref) else {
            return Ok((joint, Vec::new()));
        };
        let Instruction { op, attrs, .. } = meeting.instruction;
        let attributes = PyDict::new(py);
        for (row, attr) in op.info().attrs.iter().zip(attrs) {
            attributes.set_item(row.name, attributes::object(py, row.kind, attr, dtypes)?)?;
        }
        let arguments = (
            op.info().name,
            attributes,
            meeting.tag,
            meeting.members.to_vec(),
            meeting.me,
            joint.operand.as_ref(),
            joint.result.as_ref(),
        );
        let offered: Option<(Py<PyAny>, Vec<u8>)> =
            way.offer.bind(py).call1(arguments)?.extract()?;
        let Some((object, word)) = offered else { return Ok((joint, Vec::new())) };
        joint.object = Some(object);
        Ok((joint, word))
    }
}

impl Joint {
    pub fn hear(&self, py: Python<'_>, words: &[&[u8]], work: Option<&Work>) -> PyResult<Turn> {
        let Some(object) = &self.object else { return Ok(Turn::Bytes) };
        let words = PyList::new(py, words.iter().map(|word| PyBytes::new(py, word)))?;
        let work = work.map(|work| described(py, work)).transpose()?;
        let turn = object.bind(py).call_method1("hear", (words, work))?;
        Ok(match turn.extract::<Option<(bool, Vec<u8>)>>()? {
            None => Turn::Bytes,
            Some((false, word)) => Turn::Say(word),
            Some((true, word)) => Turn::Done(word),
        })
    }

    /// Whether the result can be had, or never will be; at once where the backend does not say.
    pub fn is_over(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.object {
            Some(object) if self.is_polled => object.bind(py).call_method0("is_over")?.extract(),
            Some(_) | None => Ok(true),
        }
    }

    pub fn lose(&self, py: Python<'_>, member: u32) -> PyResult<()> {
        let Some(object) = self.object.as_ref().filter(|_| self.is_polled) else { return Ok(()) };
        object.bind(py).call_method1("lose", (member,)).map(drop)
    }

    /// All go by bytes: a call that waits for its turn is taken out of the others' way.
    pub fn withdraw(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_polled { self.part(py, &[]) } else { Ok(()) }
    }

    /// What takes the result's place, if anything does.
    pub fn land(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(object) = &self.object else { return Ok(None) };
        let landed = object.bind(py).call_method0("land")?;
        Ok((!landed.is_none()).then(|| landed.unbind()))
    }

    pub fn part(&self, py: Python<'_>, words: &[Option<Vec<u8>>]) -> PyResult<()> {
        let Some(object) = &self.object else { return Ok(()) };
        let words = words.iter().map(|word| word.as_ref().map(|word| PyBytes::new(py, word)));
        object.bind(py).call_method1("part", (PyList::new(py, words)?,)).map(drop)
    }
}

/// The work as `gt.worker.ways` describes it: in elements.
fn described<'py>(py: Python<'py>, work: &Work) -> PyResult<Bound<'py, PyTuple>> {
    let size = usize::try_from(work.dtype.size()).unwrap_or(1);
    let stretch = |stretch: StridedRange| {
        let StridedRange { start, rows, run, stride } = stretch;
        (start / size, rows, run / size, stride / size)
    };
    let kept = work.kept.map(|(from, to)| (stretch(from), stretch(to)));
    let folding = work.folding.as_ref().map(|folding| {
        let shards: Vec<_> = folding.shards.iter().map(|&shard| stretch(shard)).collect();
        (name_of(folding.reduce_op), shards, stretch(folding.to))
    });
    let pull =
        |pull: &gt_worker::Pull| (pull.place, pull.of_result, stretch(pull.from), stretch(pull.to));
    let pulls: Vec<_> = work.pulls.iter().map(pull).collect();
    (kept, folding, pulls, work.shares_result).into_pyobject(py)
}

const fn name_of(reduce_op: ReduceOp) -> &'static str {
    match reduce_op {
        ReduceOp::Sum => "sum",
        ReduceOp::Max => "max",
        ReduceOp::Min => "min",
        ReduceOp::Product => "prod",
    }
}
