//! A program as a list of steps, so that it can be run again without some of them.

use super::Client;
use crate::exact::exact;
use crate::oracle::{Oracle, ProgramStep, StepOperand, count};
use gt_protocol::Id;
use std::collections::{BTreeMap, VecDeque};

/// A step with the number that it had when it was drawn.
#[derive(Clone, Debug)]
pub struct ProgramLine {
    pub step: ProgramStep,
    pub number: u64,
}

/// Steps that a client is to take, steps it has taken, and values that it still reads at its end.
#[derive(Debug, Default)]
pub struct Script {
    /// A fixed program, taken instead of drawn steps.
    program: Option<VecDeque<ProgramLine>>,
    /// Present numbers of the fixed program's values, by the numbers in the recorded program.
    numbers: BTreeMap<u64, u64>,
    steps: Option<Vec<ProgramLine>>,
    /// Values that are read when the program is over; `None` before that.
    unread: Option<Vec<Id>>,
}

impl Script {
    pub fn is_fixed(&self) -> bool {
        self.program.is_some()
    }

    /// Returns true if nothing is left to be read.
    pub fn is_over(&self) -> bool {
        self.steps.is_none() || self.unread.as_ref().is_some_and(Vec::is_empty)
    }

    pub(super) fn note(&mut self, step: &ProgramStep, number: u64) {
        // Reads at the end do not belong to the program.
        if let (Some(steps), None) = (&mut self.steps, &self.unread) {
            steps.push(ProgramLine { step: step.clone(), number });
        }
    }

    fn renamed(&self, id: Id) -> Id {
        let (number, output) = id.parts();
        Id::number(self.numbers.get(&number).copied().unwrap_or(number), output)
    }
}

impl Client {
    /// Records the steps and reads everything at the end. With a `program` it takes those steps
    /// instead of drawn ones.
    pub fn keep_script(&mut self, program: Option<&[ProgramLine]>) {
        if let Some(lines) = program {
            self.remaining = exact::<_, u64>(lines.len());
        }
        self.script = Script {
            program: program.map(|lines| lines.iter().cloned().collect()),
            steps: Some(Vec::new()),
            ..Script::default()
        };
    }

    /// Steps that it has taken.
    pub fn lines(&self) -> &[ProgramLine] {
        self.script.steps.as_deref().unwrap_or_default()
    }

    pub(super) fn step_of_script(&mut self, words: &mut Vec<u32>) {
        let Some(ProgramLine { mut step, number }) =
            self.script.program.as_mut().and_then(VecDeque::pop_front)
        else {
            return;
        };
        let script = &self.script;
        match &mut step {
            ProgramStep::Compute { terms, .. } => {
                for term in terms {
                    if let StepOperand::Value(id) = term {
                        *id = script.renamed(*id);
                    }
                }
            }
            ProgramStep::Distribute { source: value, .. } | ProgramStep::Read { value, .. } => {
                *value = script.renamed(*value);
            }
            ProgramStep::Free(ids) => ids.iter_mut().for_each(|id| *id = script.renamed(*id)),
            ProgramStep::Upload { .. }
            | ProgramStep::Configure { .. }
            | ProgramStep::Enter(_)
            | ProgramStep::Synchronize
            | ProgramStep::Stats
            | ProgramStep::Rebalance => {}
        }
        let evaluated = match &step {
            ProgramStep::Compute { compute, terms, .. } => {
                Some(self.oracle.evaluate(compute, terms))
            }
            ProgramStep::Upload { tensor, .. } => Some(Oracle::value(tensor.clone())),
            ProgramStep::Distribute { source, .. } => Some(self.oracle.copy_of(*source)),
            ProgramStep::Free(_)
            | ProgramStep::Read { .. }
            | ProgramStep::Configure { .. }
            | ProgramStep::Enter(_)
            | ProgramStep::Synchronize
            | ProgramStep::Stats
            | ProgramStep::Rebalance => None,
        };
        if evaluated.is_some() {
            self.script.numbers.insert(number, self.oracle.next_number());
        }
        self.take((step, evaluated), words);
    }

    /// Reads one of the values that are left at the end.
    pub(super) fn read_again(&mut self, words: &mut Vec<u32>) {
        if self.script.is_over() {
            return;
        }
        let unread = self.script.unread.get_or_insert_with(|| self.live.clone());
        let Some(value) = unread.pop() else { return };
        // A part of a failed value may exist nevertheless, and may be empty.
        let count = self.oracle.shape(value).map_or(1, |tensor| count(tensor));
        self.take((ProgramStep::Read { value, start: 0, count }, None), words);
    }
}
