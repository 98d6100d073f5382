//! Common properties of many values: metadata and layout. They are shared, so that a value is
//! small, and compared by pointer.

use crate::number::wide;
use gt_protocol::Meta;
use gt_protocol::digest::Digest;
use gt_protocol::placement::Layout;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Number of specs in the table, at indices given by their digests; a displaced spec lives on in
/// its values. A program has some dozens of shapes.
const SPECS_KEPT: usize = 1 << 9;

/// Metadata and layout of a value.
#[derive(Debug)]
pub(crate) struct ValueSpec {
    pub digest: u64,
    /// Bytes of the whole value, contiguous.
    pub bytes: u64,
    pub meta: Meta,
    pub layout: Layout,
    /// The layout's only worker, if there is just one.
    pub single: Option<u32>,
}

impl PartialEq for ValueSpec {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.is(&other.meta, &other.layout)
    }
}

impl ValueSpec {
    pub fn new(meta: Meta, layout: Layout) -> Self {
        Self::with_digest(digest(&meta, &layout), meta, layout)
    }

    fn with_digest(digest: u64, meta: Meta, layout: Layout) -> Self {
        let (bytes, single) = (meta.bytes(), layout.single());
        Self { digest, bytes, meta, layout, single }
    }

    fn is(&self, meta: &Meta, layout: &Layout) -> bool {
        self.meta == *meta && self.layout == *layout
    }
}

/// The specs that a session used last.
#[derive(Debug, Default)]
pub(crate) struct Specs(Vec<Option<Arc<ValueSpec>>>);

impl Specs {
    /// The spec for this metadata and layout.
    pub fn of(&mut self, meta: &Meta, layout: &Layout) -> Arc<ValueSpec> {
        let digest = digest(meta, layout);
        if self.0.is_empty() {
            self.0.resize(SPECS_KEPT, None);
        }
        // The remainder is below the limit, which fits.
        let place = usize::try_from(digest % wide(SPECS_KEPT))
            .expect("a remainder of SPECS_KEPT fits usize");
        let known = &mut self.0[place];
        if let Some(spec) = known.as_ref().filter(|spec| spec.is(meta, layout)) {
            return Arc::clone(spec);
        }
        let spec = Arc::new(ValueSpec::with_digest(digest, *meta, layout.clone()));
        *known = Some(Arc::clone(&spec));
        spec
    }
}

fn digest(meta: &Meta, layout: &Layout) -> u64 {
    let mut state = Digest::default();
    state.write_u64(u64::from(meta.dtype.code()));
    state.write_sizes(&meta.dims);
    layout.hash(&mut state);
    state.finish()
}
