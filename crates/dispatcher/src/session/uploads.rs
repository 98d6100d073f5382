//! The layouts that uploads were needed in, by the line that they came from: the next upload of the line arrives so.

use gt_protocol::Meta;
use gt_protocol::placement::Layout;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Lines and shapes that are remembered; a program that uploads from more of them starts over.
const KINDS_MAX: usize = 1 << 10;

/// What a program uploads again and again: from the same line, of the same shape.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct UploadKind {
    pub site: u32,
    pub meta: Meta,
}

/// What is known of the uploads of a kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UploadUse {
    /// There was none, or none was used.
    Unknown,
    /// All uses needed this layout.
    Always(Layout),
    /// Uses differed.
    Differs,
}

/// A session's uploads so far.
#[derive(Default)]
pub(crate) struct UploadHistory {
    #[allow(clippy::disallowed_types, reason = "looked up only: its order is never seen")]
    known: std::collections::HashMap<UploadKind, Option<Layout>, BuildHasherDefault<DefaultHasher>>,
}

impl UploadHistory {
    /// The layout that uploads of this kind were needed in. One that names a worker which has left is forgotten, and
    /// then nothing is said of this upload.
    pub fn of(&mut self, kind: &UploadKind, alive: &[u32]) -> UploadUse {
        match self.known.get(kind) {
            None => UploadUse::Unknown,
            Some(None) => UploadUse::Differs,
            Some(Some(layout)) => {
                if layout.mesh().members().iter().all(|worker| alive.contains(worker)) {
                    return UploadUse::Always(layout.clone());
                }
                self.known.remove(kind);
                UploadUse::Differs
            }
        }
    }

    /// An upload of this kind is needed in this layout.
    pub fn record(&mut self, kind: UploadKind, need: &Layout) {
        let need = Some(need).filter(|need| !need.is_partial());
        if self.known.len() >= KINDS_MAX {
            self.known.clear();
        }
        let known = self.known.entry(kind).or_insert_with(|| need.cloned());
        if known.as_ref() != need {
            *known = None;
        }
    }
}
