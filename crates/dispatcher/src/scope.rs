//! What a session knows of its signals: the scopes that its client has configured. Nothing is planned here.

use crate::event::Fault;
use gt_protocol::scope::Scope;
use gt_protocol::{Attr, Instruction, Op};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a session's texts, together: 65,535 signals of 256 bytes, more than anybody writes by hand.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Scopes by signal.
#[derive(Default)]
pub(crate) struct Scopes {
    by_signal: BTreeMap<u32, (Arc<Scope>, usize)>,
    text_bytes: usize,
    /// The scope that the program has passed through last without an instruction.
    boundary: Option<u32>,
}

impl Scopes {
    /// Gives a signal its meaning, or takes it back by an empty text.
    fn set(&mut self, signal: u32, text: &str) -> Result<(), Fault> {
        let fault = |name| Fault::Attribute { op: Op::Configure, name };
        if let Some((_, bytes)) = self.by_signal.remove(&signal) {
            self.text_bytes -= bytes;
        }
        if text.is_empty() {
            return Ok(());
        }
        let scope: Scope = text.parse().map_err(|_| fault("text"))?;
        if self.text_bytes + text.len() > TEXT_BYTES_MAX {
            return Err(fault("text"));
        }
        self.text_bytes += text.len();
        self.by_signal.insert(signal, (Arc::new(scope), text.len()));
        Ok(())
    }

    /// What `signal` means; nothing where it has no meaning of its own. Signal 0, outside of all scopes, may have one.
    pub fn get(&self, signal: u32) -> Option<&Arc<Scope>> {
        self.by_signal.get(&signal).map(|(scope, _)| scope)
    }

    /// Whether any signal has a meaning.
    pub fn is_any(&self) -> bool {
        !self.by_signal.is_empty()
    }

    /// The signal that names what moves from one scope's workers to another's: `with signal.context("a_to_b"): x = x`.
    pub fn boundary(&self) -> Option<u32> {
        self.boundary
    }

    /// The instruction `boundary`, which carries this signal; in none it ends the last one.
    pub fn pass(&mut self, signal: u32) {
        self.boundary = Some(signal).filter(|&signal| signal != 0);
    }

    /// The instruction `configure`.
    pub fn configure(&mut self, instruction: &Instruction<'_>) -> Result<(), Fault> {
        let fault = |name| Fault::Attribute { op: Op::Configure, name };
        let (Attr::Int(signal), Attr::Text(text)) =
            (instruction.attr("signal"), instruction.attr("text"))
        else {
            return Err(fault("text"));
        };
        // The header of an instruction has 16 bits for its signal.
        let signal = u16::try_from(*signal).map_err(|_| fault("signal"))?;
        self.set(u32::from(signal), text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Scopes, TEXT_BYTES_MAX};
    use crate::event::Fault;
    use gt_protocol::{Attr, Instruction, Op};
    use smallvec::smallvec;

    fn configure(scopes: &mut Scopes, signal: i64, text: &str) -> Result<(), Fault> {
        let mut word = Instruction::new(Op::Configure);
        word.attrs = smallvec![Attr::Int(signal), Attr::Text(text.into())];
        scopes.configure(&word)
    }

    #[test]
    fn a_scope_is_set_changed_and_taken_back() {
        let mut scopes = Scopes::default();
        assert!(scopes.get(3).is_none());
        configure(&mut scopes, 3, "workers=[0,1] axis=1").unwrap();
        assert_eq!(scopes.get(3).and_then(|scope| scope.axis), Some(1));
        configure(&mut scopes, 3, "workers=[0,1]").unwrap();
        assert_eq!(scopes.get(3).and_then(|scope| scope.axis), None);
        assert_eq!(scopes.text_bytes, "workers=[0,1]".len());
        configure(&mut scopes, 3, "").unwrap();
        assert!(scopes.get(3).is_none());
        assert_eq!(scopes.text_bytes, 0);
    }

    #[test]
    fn what_is_no_scope_is_a_breach() {
        let mut scopes = Scopes::default();
        for (signal, text, name) in [
            (3, "axis=one", "text"),
            (3, "axis=1 ", "text"),
            (-1, "axis=1", "signal"),
            (1 << 16, "axis=1", "signal"),
        ] {
            let expected = Fault::Attribute { op: Op::Configure, name };
            assert_eq!(configure(&mut scopes, signal, text), Err(expected), "{text}");
        }
    }

    #[test]
    fn the_last_boundary_holds() {
        let mut scopes = Scopes::default();
        for (passed, expected) in [(3, Some(3)), (5, Some(5)), (0, None)] {
            scopes.pass(passed);
            assert_eq!(scopes.boundary(), expected);
        }
    }

    #[test]
    fn texts_have_a_limit_together() {
        let mut scopes = Scopes { text_bytes: TEXT_BYTES_MAX - 10, ..Scopes::default() };
        scopes.set(1, "axis=1").unwrap();
        assert!(scopes.set(2, "axis=1").is_err());
        scopes.set(1, "").unwrap();
        scopes.set(2, "axis=1").unwrap();
    }
}
