//! Shrinking a failing program: removes lines that are not needed for the failure.

use super::{Scenario, Simulation, simulate};
use crate::client::ProgramLine;
use crate::oracle::{ProgramStep, StepOperand};
use gt_protocol::Id;
use std::collections::BTreeSet;

/// The shortest program found that still breaks a rule. No single line of it can be removed.
pub fn shrink(config: &Simulation<'_>, program: Vec<ProgramLine>) -> Vec<ProgramLine> {
    let mut program = program;
    let mut length = program.len().div_ceil(2).max(1);
    loop {
        let mut removed = false;
        // Starts at the end: nothing depends on the last lines.
        let mut end = program.len();
        while end > 0 {
            let start = end.saturating_sub(length);
            let shorter = without(&program, start..end);
            if shorter.len() < program.len() && fails(config, &shorter) {
                program = shorter;
                removed = true;
            }
            end = start.min(program.len());
        }
        if length == 1 && !removed {
            return program;
        }
        length = if length > 1 { length.div_ceil(2) } else { 1 };
    }
}

fn fails(config: &Simulation<'_>, program: &[ProgramLine]) -> bool {
    simulate(&Simulation { scenario: Scenario::Program(program), ..*config }).result.is_err()
}

/// The program without these lines and the lines that depend on them.
fn without(program: &[ProgramLine], gone: std::ops::Range<usize>) -> Vec<ProgramLine> {
    let mut missing = BTreeSet::new();
    let mut rest: Vec<ProgramLine> = Vec::new();
    for (place, line) in program.iter().enumerate() {
        let mut line = line.clone();
        let lacks = match &mut line.step {
            ProgramStep::Compute { terms, .. } => {
                let lacks = |term: &StepOperand| matches!(term, StepOperand::Value(id) if missing.contains(&number(*id)));
                terms.iter().any(lacks)
            }
            ProgramStep::Distribute { source, .. } => missing.contains(&number(*source)),
            ProgramStep::Read { value, .. } => missing.contains(&number(*value)),
            ProgramStep::Free(ids) => {
                ids.retain(|id| !missing.contains(&number(*id)));
                ids.is_empty()
            }
            ProgramStep::Upload { .. }
            | ProgramStep::Configure { .. }
            | ProgramStep::Enter(_)
            | ProgramStep::Synchronize
            | ProgramStep::Stats
            | ProgramStep::Rebalance => false,
        };
        if !lacks && !gone.contains(&place) {
            rest.push(line);
        } else if defines(&line.step) {
            missing.insert(line.number);
        }
    }
    forget_deaths(&mut rest);
    rest
}

/// Consumes an operand only if the next line frees it.
fn forget_deaths(program: &mut [ProgramLine]) {
    for place in 0..program.len() {
        let freed: Vec<Id> = match program.get(place + 1).map(|line| &line.step) {
            Some(ProgramStep::Free(ids)) => ids.clone(),
            _ => Vec::new(),
        };
        if let ProgramStep::Compute { terms, consumes, .. } = &mut program[place].step {
            for (position, term) in terms.iter().take(16).enumerate() {
                if !matches!(term, StepOperand::Value(id) if freed.contains(id)) {
                    *consumes &= !(1 << position);
                }
            }
        }
    }
}

fn number(id: Id) -> u64 {
    id.parts().0
}

fn defines(step: &ProgramStep) -> bool {
    matches!(
        step,
        ProgramStep::Compute { .. } | ProgramStep::Upload { .. } | ProgramStep::Distribute { .. }
    )
}
