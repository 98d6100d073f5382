//! Regions of the program that may be compiled: the functions that `gt.compile` is made of.

use super::tensor::Tensor;
use crate::client::emission::region as open_region;
use crate::client::session::region::{ProgramTable, SegmentOutcome};
use crate::client::session::{runtime, site};
use crate::client::value::ValueHandle;
use crate::client::value::metadata::SharedMeta;
use crate::client::value::variable::Var;
use gt_protocol::{Dims, Dtype, Meta};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Mutex;

/// Adds this file's functions and classes.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RegionPrograms>()?;
    module.add_function(wrap_pyfunction!(region_open, module)?)?;
    module.add_function(wrap_pyfunction!(region_close, module)?)
}

/// The programs of a function: the instructions of its calls, by what they are.
#[pyclass(frozen, module = "gt._core")]
#[derive(Debug)]
pub(crate) struct RegionPrograms {
    /// `None` while the function's region is open.
    table: Mutex<Option<ProgramTable>>,
}

#[pymethods]
impl RegionPrograms {
    /// `threshold`: occurrences after which a program is compiled; `least`: its fewest instructions;
    /// `most`: the most programs of the function; `is_timed`: true to keep a compiled program only
    /// where it is faster than its instructions.
    #[new]
    fn new(threshold: u64, least: usize, most: usize, is_timed: bool) -> Self {
        let table = ProgramTable { threshold, least, most, is_timed, ..ProgramTable::default() };
        Self { table: Mutex::new(Some(table)) }
    }

    /// Notes the tensor that holds a program's bytes.
    fn uploaded(&self, py: Python<'_>, digest: u64, bytes: &Bound<'_, Tensor>) -> PyResult<()> {
        let value = bytes.get().var.value(py)?;
        self.with(|table| table.uploaded(digest, value.slot, value.epoch));
        Ok(())
    }

    /// Notes a worker's answer about a program: 0 compiling, 1 ready, 2 refused.
    fn answered(&self, digest: u64, answer: i64) {
        self.with(|table| table.answered(digest, answer));
    }

    /// Notes the nanoseconds that a timed run of a program took.
    fn timed(&self, digest: u64, nanoseconds: i64) {
        self.with(|table| table.timed(digest, nanoseconds));
    }

    /// Digest, number of instructions, stage, numbers of occurrences and calls, and nanoseconds of
    /// the instructions and of a call where they were timed, of each program.
    fn stages(&self) -> Vec<ProgramReport> {
        let mut stages = Vec::new();
        self.with(|table| {
            stages.extend(table.entries.iter().map(|(&digest, entry)| {
                let times = entry.best(0).zip(entry.best(1));
                let counts = (entry.seen, entry.called);
                (digest, entry.instructions, entry.stage.text(), counts.0, counts.1, times)
            }));
        });
        stages.sort_unstable();
        stages
    }
}

impl RegionPrograms {
    fn with(&self, body: impl FnOnce(&mut ProgramTable)) {
        if let Ok(mut table) = self.table.lock()
            && let Some(table) = table.as_mut()
        {
            body(table);
        }
    }
}

/// Opens a region; returns false where that is not possible, and everything runs as always.
#[pyfunction]
fn region_open(py: Python<'_>, programs: &Bound<'_, RegionPrograms>) -> bool {
    let Ok(mut place) = programs.get().table.lock() else { return false };
    let Some(table) = place.take() else { return false };
    match open_region::open(py, table) {
        Ok(()) => true,
        Err(table) => {
            *place = Some(table);
            false
        }
    }
}

/// A program: see `RegionPrograms.stages`.
type ProgramReport = (u64, usize, &'static str, u64, u64, Option<(i64, i64)>);
/// A part of a region: the user's line, number of instructions, what became of it, and what ended it.
type SegmentReport = (Option<String>, usize, &'static str, Option<&'static str>);
/// Parts; programs to upload, by digest; answers of workers, by digest.
type RegionReport = (Vec<SegmentReport>, Vec<(u64, Py<PyBytes>)>, Vec<(u64, Vec<Py<Tensor>>)>);

/// Closes the region that `region_open` opened, and says what became of it.
#[pyfunction]
fn region_close(py: Python<'_>, programs: &Bound<'_, RegionPrograms>) -> PyResult<RegionReport> {
    let (region, sent) = open_region::close(py);
    let Some(region) = region else {
        sent?;
        return Ok((Vec::new(), Vec::new(), Vec::new()));
    };
    let mut table = region.table;
    let wanted = std::mem::take(&mut table.wanted);
    let mut answers = Vec::new();
    for (&digest, entry) in &mut table.entries {
        let mut tensors = Vec::new();
        for slot in std::mem::take(&mut entry.answers) {
            let meta = SharedMeta::of(py, &Meta::new(Dtype::I64, Dims::EMPTY));
            let var = Var::of(py, ValueHandle { slot, epoch: runtime::epoch(), meta });
            tensors.push(Py::new(py, Tensor::of(var))?);
        }
        if !tensors.is_empty() {
            answers.push((digest, tensors));
        }
    }
    if let Ok(mut place) = programs.get().table.lock() {
        *place = Some(table);
    }
    sent?;
    let wanted = wanted.iter().map(|(digest, words)| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        (*digest, PyBytes::new(py, &bytes).unbind())
    });
    let segments = region.segments.iter().map(|segment| {
        let outcome = match segment.outcome {
            SegmentOutcome::Plain => "plain",
            SegmentOutcome::Called => "called",
            SegmentOutcome::Unfit(unfit) => unfit.text(),
        };
        (site::name(py, segment.site), segment.instructions, outcome, segment.end)
    });
    Ok((segments.collect(), wanted.collect(), answers))
}
