//! The layouts in which uploads were needed, by the line that they came from: the next upload of
//! the line arrives in that layout.

use gt_protocol::Meta;
use gt_protocol::placement::Layout;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Maximum number of lines and shapes in the history; a program that exceeds it starts over.
const KINDS_MAX: usize = 1 << 10;

/// Key of repeated uploads: from the same line, with the same shape.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct UploadKind {
    pub site: u32,
    pub meta: Meta,
}

/// History of the uploads of a kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UploadUse {
    /// No upload yet, or none that was used.
    Unknown,
    /// All uses needed this layout.
    Always(Layout),
    /// Uses needed different layouts.
    Differs,
}

/// A session's uploads so far.
#[derive(Default)]
pub(crate) struct UploadHistory {
    #[allow(clippy::disallowed_types, reason = "looked up only: its order is never seen")]
    known: std::collections::HashMap<UploadKind, Option<Layout>, BuildHasherDefault<DefaultHasher>>,
}

impl UploadHistory {
    /// The layout in which uploads of this kind were needed. A layout with a worker that has left
    /// is dropped, and then nothing is known of this upload.
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

    /// Records that an upload of this kind is needed in this layout.
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
