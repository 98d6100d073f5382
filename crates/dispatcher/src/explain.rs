//! Why a value lies where it lies, what moved for it, and what a session has counted: for people and tests. Nothing is
//! decided here.

use crate::Dispatcher;
use crate::event::{Fault, SessionId, Sink};
use crate::handle::{Handle, Value};
use crate::note::{Laid, Motion, Note, Why};
use crate::prices::Prices;
use crate::request::{answer_failed, request_number};
use crate::session::Session;
use gt_protocol::message::{DESCRIPTION_BYTES_MAX, Failure, FailureClass, ToClient};
use gt_protocol::placement::Layout;
use gt_protocol::{Attr, Instruction, Operand};
use smallvec::SmallVec;
use std::fmt::Write;
use std::sync::Arc;

/// Operands whose change of layout is kept for an explanation; a list operand may have thousands.
const BROUGHT_MAX: usize = 8;

impl Dispatcher {
    /// What the session has moved so far, to compare with later.
    pub(crate) fn motion(&self, session: SessionId) -> Motion {
        self.motion_of(session).unwrap_or_default()
    }

    /// An operand of the plan that is being made lies otherwise than it is needed.
    pub(crate) fn note_brought(&mut self, slot: Option<u32>, session: SessionId, need: &Layout) {
        if self.brought.len() == BROUGHT_MAX {
            return;
        }
        let state = self.sessions.get(&session);
        let Some(value) = slot.and_then(|slot| state?.value(slot)) else { return };
        if value.shards.layout != *need {
            let lies = value.shards.layout.clone();
            self.brought.push((value.number, lies, need.clone()));
        }
    }

    /// Remembers how an instruction's results came to lie as they do, and counts it.
    pub(crate) fn note(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        why: Why,
        before: Motion,
    ) {
        let brought = std::mem::take(&mut self.brought);
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let moves = state.motion.since(&before);
        state.motion.classify(moves);
        let operands = instruction.values().take(BROUGHT_MAX).filter_map(|id| {
            let value = state.value(id.as_slot()?)?;
            Some((value.number, value.shards.layout.clone()))
        });
        let (op, signal) = (instruction.op, instruction.signal);
        let note = Note { op, signal, why, moves, operands: operands.collect(), brought };
        let note = Arc::new(note);
        for id in &instruction.outputs {
            if let Some(value) = id.as_slot().and_then(|slot| state.value_mut(slot)) {
                value.note = Some(Arc::clone(&note));
            }
        }
    }

    /// A scope has laid the value out.
    pub(crate) fn note_laid(&mut self, session: SessionId, slot: u32, signal: Option<u16>) {
        if let Some(value) = self.value_mut(session, slot) {
            value.laid = Laid::Scope(signal);
        }
    }

    /// The instruction `describe`.
    pub(crate) fn describe(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        let op = instruction.op;
        let request = request_number(instruction)?;
        let state = self.sessions.get(&session).ok_or(Fault::NoSession { session })?;
        let asked = [What::Layout, What::Explanation, What::Counters, What::Workers];
        let asked = asked.into_iter().zip(0..);
        let mut asked =
            asked.filter(|(_, choice)| *instruction.attr("what") == Attr::Choice(*choice));
        let (what, _) = asked.next().ok_or(Fault::Attribute { op, name: "what" })?;
        let slot = match instruction.operands.first() {
            Some(Operand::Value(id)) => id.as_slot(),
            Some(Operand::Absent | Operand::Scalar(_)) | None => None,
        };
        let text = match (what, slot) {
            (What::Counters, _) => self.counters(state),
            (What::Workers, _) => self.indexes(),
            (What::Layout | What::Explanation, None) => {
                return Err(Fault::UnknownSlot { op, slot: u64::MAX });
            }
            (What::Layout | What::Explanation, Some(slot)) => match state.handle(slot) {
                Handle::Free => return Err(Fault::UnknownSlot { op, slot: u64::from(slot) }),
                Handle::Failed(failure) => {
                    answer_failed(session, request, &failure.clone(), sink);
                    return Ok(());
                }
                Handle::Live(value) if what == What::Layout => layout(value).to_string(),
                Handle::Live(value) => explanation(state, value, &self.prices),
            },
        };
        if text.len() <= DESCRIPTION_BYTES_MAX {
            sink.session(session, &ToClient::Description { request, text: &text });
            return Ok(());
        }
        let text = format!("its layout has {} bytes of text", text.len());
        let (number, class) = (0, FailureClass::Quota);
        let failure = Failure {
            session: session.0,
            number,
            class,
            op: Some(op),
            tag: instruction.tag,
            text: &text,
        };
        sink.session(session, &ToClient::FailedReply { request, failure });
        Ok(())
    }

    /// The indexes of the workers that are connected, in one line.
    fn indexes(&self) -> String {
        let words: SmallVec<[String; 8]> = self.alive().iter().map(ToString::to_string).collect();
        words.join(" ")
    }

    /// `name=value` for each counter, in one line.
    fn counters(&self, state: &Session) -> String {
        let workers = u64::try_from(self.alive().len()).unwrap_or(0);
        let values = u64::try_from(state.live_values()).unwrap_or(0);
        let held = [("workers", workers), ("values", values), ("bytes", state.live_bytes())];
        let words: SmallVec<[String; 16]> = held
            .into_iter()
            .chain(state.motion.counters())
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        words.join(" ")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Layout,
    Explanation,
    Counters,
    Workers,
}

/// How the value lies, or will from its first use on.
fn layout(value: &Value) -> &Layout {
    value.wish.as_ref().unwrap_or(&value.shards.layout)
}

/// `name: text` a line, in the order in which a person wants to know.
fn explanation(state: &Session, value: &Value, prices: &Prices) -> String {
    let mut lines = vec![
        format!("value: {} {}", named(value), value.meta),
        format!("layout: {}", layout(value)),
        format!("why: {}", why(state, value)),
    ];
    if value.site != 0 {
        lines.push(format!("site: {}", value.site));
    }
    if let Some(note) = &value.note {
        if note.signal != 0 {
            lines.push(format!("signal: {}", signal(state, note.signal)));
        }
        for (number, lies, need) in &note.brought {
            lines.push(format!("brought: %{number} from {lies} to {need}"));
        }
        lines.push(format!("moved: {} bytes", note.moves.bytes));
        let cost = note.moves.cost(prices.among(value.shards.layout.mesh()));
        lines.push(format!("cost: about {cost:.0} us{}", note.moves.ways()));
    } else {
        lines.push("moved: 0 bytes".to_owned());
    }
    for copy in &value.copies {
        lines.push(format!("copy: {}", copy.layout));
    }
    lines.join("\n")
}

/// What the trace calls a value.
fn named(value: &Value) -> String {
    match value.output {
        0 => format!("%{}", value.number),
        output => format!("%{}.{output}", value.number),
    }
}

fn why(state: &Session, value: &Value) -> String {
    match value.laid {
        Laid::Scope(Some(id)) => return format!("signal {} lays it out", signal(state, id)),
        Laid::Scope(None) => return "the signal that it was created in lays it out".to_owned(),
        Laid::For(number) if number != value.number => {
            return format!("%{number} needed it so");
        }
        Laid::For(_) => return "it was made whole to be read".to_owned(),
        Laid::Sent => return "it was sent to where this session makes new tensors".to_owned(),
        Laid::AsMade => {}
    }
    if value.wish.is_some() {
        return "the signal that it was created in lays it out at its first use".to_owned();
    }
    if value.recipe.is_some() && value.note.is_none() {
        return "it is made at its first use, here if that says nothing else".to_owned();
    }
    let Some(note) = &value.note else {
        return "made where its operands are, or where this session makes new tensors".to_owned();
    };
    match note.why {
        Why::Habit => "what this line sent before was needed so".to_owned(),
        Why::Asked => "this layout was asked for".to_owned(),
        Why::Scope => {
            format!("signal {} says how what is created lies", signal(state, note.signal))
        }
        Why::Spread => {
            let mut text = format!("{} follows its operands", note.op.info().name);
            for (position, (number, layout)) in note.operands.iter().enumerate() {
                let gap = if position == 0 { ":" } else { "," };
                // Writing to a string cannot fail.
                let _ = write!(text, "{gap} %{number} {layout}");
            }
            text
        }
    }
}

/// A signal by name and meaning: `mlp (workers=[0,1] axis=1)`.
fn signal(state: &Session, id: u16) -> String {
    let id = u32::from(id);
    let name = state.signals.get(&id).map_or_else(|| id.to_string(), ToString::to_string);
    match state.scopes.get(id) {
        Some(scope) => format!("{name} ({scope})"),
        None => name,
    }
}
