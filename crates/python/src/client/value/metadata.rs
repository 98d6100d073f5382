//! Shared metadata of values: many values have the same dtype and shape, and most results have
//! their operand's.

use super::pool::{Pool, Pooled, Resident};
use crate::client::gil_cell::GilCell;
use gt_protocol::Meta;
use pyo3::Python;
use std::fmt;
use std::ops::Deref;

/// Entries of the table that finds metadata again. Entries with the same hash replace each other:
/// equal metadata may then be in memory twice.
const PLACES: usize = 256;

/// Dtype and shape, and values derived from them.
pub(crate) struct Metadata {
    meta: Meta,
    pub bytes: u64,
}

/// A reference to metadata that many values share.
pub(crate) type SharedMeta = Pooled<Metadata>;

static POOL: GilCell<Pool<Metadata>> = GilCell::new(Pool::new());
static TABLE: GilCell<[Option<SharedMeta>; PLACES]> = GilCell::new([const { None }; PLACES]);

impl Resident for Metadata {
    fn pool() -> &'static GilCell<Pool<Self>> {
        &POOL
    }

    #[inline]
    fn end(&mut self, _py: Python<'_>) {}
}

impl Deref for Metadata {
    type Target = Meta;

    #[inline]
    fn deref(&self) -> &Meta {
        &self.meta
    }
}

impl SharedMeta {
    /// A reference to metadata, shared with recent values of the same metadata.
    pub(crate) fn of(py: Python<'_>, meta: &Meta) -> Self {
        let mut table = TABLE.get_mut(py);
        let place = &mut table[place_of(meta)];
        if let Some(known) = place
            && known.meta == *meta
        {
            return known.clone_ref(py);
        }
        let shared = Self::new(py, Metadata { meta: *meta, bytes: meta.bytes() });
        *place = Some(shared.clone_ref(py));
        shared
    }
}

impl fmt::Display for SharedMeta {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.meta.fmt(out)
    }
}

fn place_of(meta: &Meta) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix =
        |hash: u64, size: &i64| (hash.rotate_left(5) ^ size.cast_unsigned()).wrapping_mul(FACTOR);
    let hash = meta.dims.iter().fold(u64::from(meta.dtype.code()).wrapping_mul(FACTOR), mix);
    usize::try_from(hash >> (u64::BITS - PLACES.ilog2())).expect("a place is below PLACES")
}
