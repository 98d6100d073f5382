//! A failing program made short: what can go without the failure going too.

use super::{Config, Scenario, simulate};
use crate::client::Line;
use crate::oracle::{Step, Term};
use gt_protocol::Id;
use std::collections::BTreeSet;

/// The shortest program found that still breaks a rule. No line of it can go alone.
pub fn shrink(config: &Config<'_>, program: Vec<Line>) -> Vec<Line> {
    let mut program = program;
    let mut length = program.len().div_ceil(2).max(1);
    loop {
        let mut removed = false;
        // From the end: what is last hangs on nothing.
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

fn fails(config: &Config<'_>, program: &[Line]) -> bool {
    simulate(&Config { scenario: Scenario::Program(program), ..*config }).result.is_err()
}

/// The program without these lines and what hangs on them.
fn without(program: &[Line], gone: std::ops::Range<usize>) -> Vec<Line> {
    let mut missing = BTreeSet::new();
    let mut kept: Vec<Line> = Vec::new();
    for (place, line) in program.iter().enumerate() {
        let mut line = line.clone();
        let lacks = match &mut line.step {
            Step::Compute { terms, .. } => {
                let lacks =
                    |term: &Term| matches!(term, Term::Value(id) if missing.contains(&number(*id)));
                terms.iter().any(lacks)
            }
            Step::Distribute { source, .. } => missing.contains(&number(*source)),
            Step::Read { value, .. } => missing.contains(&number(*value)),
            Step::Free(ids) => {
                ids.retain(|id| !missing.contains(&number(*id)));
                ids.is_empty()
            }
            Step::Upload { .. }
            | Step::Configure { .. }
            | Step::Enter(_)
            | Step::Synchronize
            | Step::Stats => false,
        };
        if !lacks && !gone.contains(&place) {
            kept.push(line);
        } else if defines(&line.step) {
            missing.insert(line.number);
        }
    }
    forget_deaths(&mut kept);
    kept
}

/// An operand is consumed only where the next line frees it.
fn forget_deaths(program: &mut [Line]) {
    for place in 0..program.len() {
        let freed: Vec<Id> = match program.get(place + 1).map(|line| &line.step) {
            Some(Step::Free(ids)) => ids.clone(),
            _ => Vec::new(),
        };
        if let Step::Compute { terms, consumes, .. } = &mut program[place].step {
            for (position, term) in terms.iter().take(16).enumerate() {
                if !matches!(term, Term::Value(id) if freed.contains(id)) {
                    *consumes &= !(1 << position);
                }
            }
        }
    }
}

fn number(id: Id) -> u64 {
    id.parts().0
}

fn defines(step: &Step) -> bool {
    matches!(step, Step::Compute { .. } | Step::Upload { .. } | Step::Distribute { .. })
}
