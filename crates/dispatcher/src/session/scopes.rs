//! The signals of a session: the scopes that its client has configured, and their meshes.

use crate::event::ClientFault;
use gt_protocol::placement::Mesh;
use gt_protocol::scope::Scope;
use gt_protocol::{Attr, Instruction, Op};
use smallvec::SmallVec;
use std::sync::Arc;

/// Maximum bytes of all texts of a session: 65,535 signals of 256 bytes.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// A signal's scope.
#[derive(Debug)]
struct ScopeEntry {
    scope: Arc<Scope>,
    text_bytes: usize,
    /// True if the scope sets workers or placements.
    places: bool,
    /// The mesh of its workers, and the epoch in which it was made.
    mesh: Option<(u64, Mesh)>,
}

/// A scope with placements, and its mesh.
#[derive(Clone, Debug)]
pub(crate) struct PlacingScope {
    pub scope: Arc<Scope>,
    pub mesh: Mesh,
}

/// Scopes by signal.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    /// Entries, indexed by signal.
    entries: Vec<Option<ScopeEntry>>,
    text_bytes: usize,
    /// The last scope that the program passed through without an instruction.
    boundary: Option<u32>,
}

impl Scopes {
    fn entry(&self, signal: u16) -> Option<&ScopeEntry> {
        self.entries.get(usize::from(signal))?.as_ref()
    }

    /// Sets the meaning of a signal; an empty text removes it.
    fn set(&mut self, signal: u16, text: &str) -> Result<(), ClientFault> {
        let place = usize::from(signal);
        if let Some(old) = self.entries.get_mut(place).and_then(Option::take) {
            self.text_bytes -= old.text_bytes;
        }
        if text.is_empty() {
            return Ok(());
        }
        let scope: Scope = text.parse().map_err(|_| fault("text"))?;
        if self.text_bytes + text.len() > TEXT_BYTES_MAX {
            return Err(fault("text"));
        }
        self.text_bytes += text.len();
        let places = scope.workers.is_some()
            || scope.axis.is_some()
            || scope.replicated
            || !scope.placements.is_empty();
        if place >= self.entries.len() {
            self.entries.resize_with(place + 1, || None);
        }
        if let Some(entry) = self.entries.get_mut(place) {
            let (scope, text_bytes) = (Arc::new(scope), text.len());
            *entry = Some(ScopeEntry { scope, text_bytes, places, mesh: None });
        }
        Ok(())
    }

    /// Scope of `signal`; `None` where it has none of its own. Signal 0, outside of all scopes, may
    /// have one.
    pub fn get(&self, signal: u16) -> Option<&Arc<Scope>> {
        self.entry(signal).map(|entry| &entry.scope)
    }

    /// The scope of `signal` with its mesh, if it has placements and any of its workers lives.
    /// `alive` are the workers of this epoch.
    pub fn placing(&mut self, signal: u16, alive: &[u32], epoch: u64) -> Option<PlacingScope> {
        let entry = self.entries.get_mut(usize::from(signal))?.as_mut().filter(|one| one.places)?;
        let mesh = match &entry.mesh {
            Some((made_in, mesh)) if *made_in == epoch => mesh.clone(),
            Some(_) | None => {
                let mesh = mesh_of(&entry.scope, alive)?;
                entry.mesh = Some((epoch, mesh.clone()));
                mesh
            }
        };
        Some(PlacingScope { scope: Arc::clone(&entry.scope), mesh })
    }

    /// Returns true if an instruction of `signal` on values that are whole on `worker` runs there:
    /// its scope has no placements, or only that worker.
    #[inline]
    pub fn stays_on(&self, signal: u16, worker: u32, epoch: u64) -> bool {
        match self.entry(signal) {
            None | Some(ScopeEntry { places: false, .. }) => true,
            Some(ScopeEntry { mesh: Some((made_in, mesh)), .. }) => {
                *made_in == epoch && mesh.single() == Some(worker)
            }
            Some(ScopeEntry { mesh: None, .. }) => false,
        }
    }

    /// The signal whose name goes to transfers from one scope's workers to another's: `with
    /// signal.context("a_to_b"): x = x`.
    pub fn boundary(&self) -> Option<u32> {
        self.boundary
    }

    /// Handles the instruction `boundary`, which carries this signal; outside of all scopes it ends
    /// the last one.
    pub fn pass(&mut self, signal: u32) {
        self.boundary = Some(signal).filter(|&signal| signal != 0);
    }

    /// Handles the instruction `configure`.
    pub fn configure(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let (Attr::Int(signal), Attr::Text(text)) =
            (instruction.attr("signal"), instruction.attr("text"))
        else {
            return Err(fault("text"));
        };
        // The header of an instruction has 16 bits for its signal.
        let signal = u16::try_from(*signal).map_err(|_| fault("signal"))?;
        self.set(signal, text)
    }
}

/// Fault in an attribute of the instruction `configure`.
fn fault(name: &'static str) -> ClientFault {
    ClientFault::Attribute { op: Op::Configure, name }
}

/// The mesh of the scope's living workers, in its arrangement; of all living ones where the scope
/// names none.
fn mesh_of(scope: &Scope, alive: &[u32]) -> Option<Mesh> {
    let named = scope.workers.as_deref().unwrap_or(alive);
    let members: SmallVec<[u32; 8]> =
        named.iter().copied().filter(|worker| alive.contains(worker)).collect();
    let members = if members.is_empty() { alive } else { &members };
    if members.is_empty() {
        return None;
    }
    let shape: SmallVec<[usize; 3]> =
        scope.mesh.iter().filter_map(|(_, size)| usize::try_from(*size).ok()).collect();
    Some(Mesh::new(&shape, members).unwrap_or_else(|| Mesh::line(members)))
}

#[cfg(test)]
mod tests {
    use super::{Scopes, TEXT_BYTES_MAX, fault};
    use crate::event::ClientFault;
    use gt_protocol::{Attr, Instruction, Op};
    use smallvec::smallvec;

    fn configure(scopes: &mut Scopes, signal: i64, text: &str) -> Result<(), ClientFault> {
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
            assert_eq!(configure(&mut scopes, signal, text), Err(fault(name)), "{text}");
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

    #[test]
    fn a_mesh_follows_the_workers_that_live() {
        let mut scopes = Scopes::default();
        for (signal, text) in [(1, "compile=true"), (2, "workers=[1,2]"), (3, "axis=0")] {
            configure(&mut scopes, signal, text).unwrap();
        }
        let members = |scopes: &mut Scopes, signal, alive: &[u32], epoch| {
            let placing = scopes.placing(signal, alive, epoch);
            placing.map(|placing| placing.mesh.members().to_vec())
        };
        assert_eq!(members(&mut scopes, 2, &[], 0), None);
        assert_eq!(members(&mut scopes, 2, &[0], 1), Some(vec![0]));
        let all = [1, 2, 3].map(|signal| members(&mut scopes, signal, &[0, 2], 2));
        assert_eq!(all, [None, Some(vec![2]), Some(vec![0, 2])]);
        let stays = [1, 2, 3].map(|signal| scopes.stays_on(signal, 2, 2));
        assert_eq!(stays, [true, true, false]);
        assert!(!scopes.stays_on(2, 2, 3), "another worker has joined");
    }
}
