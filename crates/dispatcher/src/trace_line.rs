//! A line of the instruction log, as the server and an embedded dispatcher write it.

use crate::event::{SessionId, TraceNotes};
use gt_protocol::Instruction;
use gt_protocol::text::{Names, PayloadText, TextLine};
use std::fmt::{self, Write};

/// An instruction, then the dispatcher's notes behind `#`: results, effects, time, session, the
/// user's `file:line`, and the error.
#[derive(Clone, Copy, Debug)]
pub struct TraceLine<'a> {
    pub instruction: &'a Instruction<'a>,
    pub notes: &'a TraceNotes<'a>,
    /// `12:03:07.123456`: the core has no clock.
    pub time: &'a str,
    /// `None` where the log has one session.
    pub session: Option<SessionId>,
}

impl fmt::Display for TraceLine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instruction, notes, time, session } = self;
        let names = SignalName { id: instruction.signal, name: notes.signal };
        let line = TextLine { instruction, names: &names, payload: PayloadText::Reference };
        write!(out, "{line}  #")?;
        if !notes.results.is_empty() {
            write!(out, " {}", notes.results)?;
        }
        if notes.moved_bytes > 0 {
            write!(out, " moved={}", notes.moved_bytes)?;
        }
        out.write_str(&notes.together())?;
        if let Some(boundary) = notes.boundary {
            write!(out, " boundary={boundary}")?;
        }
        write!(out, " {time}")?;
        if let Some(SessionId(number)) = session {
            write!(out, " s{number}")?;
        }
        if let Some(site) = notes.site.filter(|site| !site.is_empty()) {
            write!(out, " {}", one_line(site))?;
        }
        if let Some(error) = &notes.error {
            write!(out, " ERROR {}", one_line(error))?;
        }
        Ok(())
    }
}

/// A line about the place of an instruction's results, for `GT_DEBUG_DISPATCHER`; `None` for an
/// instruction that has no results, or whose results failed.
#[must_use]
pub fn decision_line(instruction: &Instruction<'_>, notes: &TraceNotes<'_>) -> Option<String> {
    let reason = notes.reason.as_ref()?;
    let names = SignalName { id: instruction.signal, name: notes.signal };
    let line = TextLine { instruction, names: &names, payload: PayloadText::Reference };
    let mut text = format!("dispatcher: {line} -> {}; {}", notes.results, one_line(reason));
    if notes.moved_bytes > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, "; {} bytes move", notes.moved_bytes);
    }
    if let Some(site) = notes.site.filter(|site| !site.is_empty()) {
        let _ = write!(text, "  {}", one_line(site));
    }
    Some(text)
}

/// The name of the one signal that the line may have.
struct SignalName<'a> {
    id: u16,
    name: Option<&'a str>,
}

impl Names for SignalName<'_> {
    fn signal_name(&self, id: u16) -> Option<&str> {
        self.name.filter(|_| id == self.id)
    }

    fn signal_id(&mut self, _name: &str) -> Option<u16> {
        None
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::{TraceLine, decision_line};
    use crate::event::{SessionId, TraceNotes};
    use gt_protocol::Id;
    use gt_protocol::text::{NoNames, parse};

    #[test]
    fn a_line_has_every_note_in_one_order() {
        let mut payload = Vec::new();
        let parsed = parse("%2 = add %0 %1", &mut NoNames, &mut payload).unwrap();
        let instruction = parsed.unwrap();
        let line = |notes: &TraceNotes<'_>, session| {
            let time = "12:03:07.123456";
            TraceLine { instruction: &instruction, notes, time, session }.to_string()
        };
        assert_eq!(line(&TraceNotes::default(), None), "%2 = add %0 %1  # 12:03:07.123456");
        let notes = TraceNotes {
            results: "f32[2] replicate@[0]".to_owned(),
            signal: None,
            site: Some("a\nb.py:4"),
            error: Some("first\nsecond".to_owned()),
            moved_bytes: 8,
            boundary: Some("stage0_to_stage1"),
            together: &[Id::number(3, 0), Id::number(5, 1)],
            reason: None,
        };
        assert_eq!(
            line(&notes, Some(SessionId(7))),
            "%2 = add %0 %1  # f32[2] replicate@[0] moved=8 together=%3,%5.1 \
             boundary=stage0_to_stage1 12:03:07.123456 s7 a b.py:4 ERROR first second"
        );
        assert_eq!(decision_line(&instruction, &notes), None);
        let notes = TraceNotes { reason: Some("asked for".to_owned()), ..notes };
        assert_eq!(
            decision_line(&instruction, &notes).as_deref(),
            Some(
                "dispatcher: %2 = add %0 %1 -> f32[2] replicate@[0]; asked for; 8 bytes move  a b.py:4"
            )
        );
    }
}
