//! Reasons of layouts in words, for people: `gt.explain` and the lines about decisions.

use super::Session;
use super::provenance::{Decider, LayoutCause, LayoutChange};
use super::value::{PendingLayout, Value};
use std::fmt::Write;

/// Reason of a value's layout, and what was resharded for it, in one line.
pub(crate) fn in_one_line(session: &Session, value: &Value) -> String {
    let mut text = of_layout(session, value);
    let changes = value.provenance().into_iter().flat_map(|provenance| &provenance.changes);
    for LayoutChange { number, from, to } in changes {
        // Writing to a string cannot fail.
        let _ = write!(text, "; %{number} goes from {from} to {to}");
    }
    text
}

/// Reason of a value's layout, in one sentence.
pub(crate) fn of_layout(session: &Session, value: &Value) -> String {
    if matches!(value.pending(), PendingLayout::Rebalance(_)) {
        return "gt.rebalance() gives it this layout, over the workers that were there, at its next \
                use"
            .to_owned();
    }
    match value.cause() {
        LayoutCause::Scope(Some(id)) => {
            return format!("signal {} gives its layout", signal(session, id));
        }
        LayoutCause::Scope(None) => {
            return "the signal that it was created in gives its layout".to_owned();
        }
        LayoutCause::Instruction(number) if number != value.number() => {
            return format!("%{number} needed this layout");
        }
        LayoutCause::Instruction(_) => return "a read made it whole".to_owned(),
        LayoutCause::Unknown => {
            return "sent to the session's default worker".to_owned();
        }
        LayoutCause::Rebalanced => {
            return "gt.rebalance() gave it this layout, over the workers that were there"
                .to_owned();
        }
        LayoutCause::AsMade => {}
    }
    if matches!(value.pending(), PendingLayout::Target(_)) {
        return "the signal that it was created in gives its layout at its first use".to_owned();
    }
    if value.deferred().is_some() && value.provenance().is_none() {
        return "created at its first use, which may choose another layout".to_owned();
    }
    let Some(provenance) = value.provenance() else {
        return "placed with its operands, or on the session's default worker".to_owned();
    };
    match provenance.decider {
        Decider::UploadHistory => "what this line sent before was needed in this layout".to_owned(),
        // The layout may have been requested for all workers before the others joined.
        Decider::Request(_) if value.layout().mesh().len() == 1 => {
            "asked for by the program, over one worker: a cut over one is the whole".to_owned()
        }
        Decider::Request(_) => "asked for by the program".to_owned(),
        Decider::Scope => {
            let signal = signal(session, provenance.signal);
            format!("signal {signal} gives the layout of new tensors")
        }
        Decider::Strategy => {
            let mut text = format!("{} follows its operands", provenance.op.info().name);
            for (position, (number, layout)) in provenance.operands.iter().enumerate() {
                let gap = if position == 0 { ":" } else { "," };
                // Writing to a string cannot fail.
                let _ = write!(text, "{gap} %{number} {layout}");
            }
            text
        }
    }
}

/// A signal by name and meaning: `mlp (workers=[0,1] axis=1)`.
pub(crate) fn signal(session: &Session, id: u16) -> String {
    let signal = u32::from(id);
    let name = session.signals.get(&signal);
    let name = name.map_or_else(|| signal.to_string(), ToString::to_string);
    match session.scopes.get(id) {
        Some(scope) => format!("{name} ({scope})"),
        None => name,
    }
}
