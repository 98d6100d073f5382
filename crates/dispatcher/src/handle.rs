//! What a client's slot stands for.

use crate::failure::Failure;
use gt_protocol::Meta;
use gt_protocol::placement::Layout;
use smallvec::SmallVec;

/// A value that exists (or will, once the workers get there).
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub meta: Meta,
    pub number: u64,
    pub output: u8,
    pub layout: Layout,
    /// The slot on each member of the layout's mesh.
    pub slots: SmallVec<[u32; 2]>,
}

/// A client's slot.
#[derive(Clone, Debug, Default)]
pub(crate) enum Handle {
    #[default]
    Free,
    Live(Value),
    Failed(Failure),
}
