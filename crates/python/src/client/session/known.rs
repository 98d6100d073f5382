//! Numbers that are in the program's process, by slot: what it sent itself lately, and what a check
//! has read. A check of them needs no round trip. A read takes them only if they came from a
//! worker: a value that was sent may have failed there.

use crate::client::gil_cell::GilCell;
use pyo3::Python;

/// Values that are remembered: those of the last few calls, which a check follows at once.
const PLACES: usize = 64;
/// Largest value that is remembered.
const BYTES_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Known {
    slot: u32,
    epoch: u32,
    /// Number of bytes in use; 0 where nothing is remembered.
    length: usize,
    bytes: [u8; BYTES_MAX],
    sender: Sender,
}

/// Process that had the numbers first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Program,
    Worker,
}

const NOTHING: Known =
    Known { slot: 0, epoch: 0, length: 0, bytes: [0; BYTES_MAX], sender: Sender::Program };

static TABLE: GilCell<[Known; PLACES]> = GilCell::new([NOTHING; PLACES]);

impl Known {
    #[inline]
    fn is_of(&self, slot: u32, epoch: u32) -> bool {
        self.length > 0 && self.slot == slot && self.epoch == epoch
    }
}

#[inline]
fn place(slot: u32) -> usize {
    usize::try_from(slot).expect("a slot fits a size") % PLACES
}

/// Remembers the bytes of a new value, in place of the value that stands at its place in the table.
pub(crate) fn remember(py: Python<'_>, slot: u32, epoch: u32, bytes: &[u8], sender: Sender) {
    let length = bytes.len();
    if length > BYTES_MAX {
        return;
    }
    let mut known = Known { slot, epoch, length, sender, ..NOTHING };
    known.bytes[..length].copy_from_slice(bytes);
    TABLE.get_mut(py)[place(slot)] = known;
}

/// Forgets a value that is gone: its slot will be another's.
#[inline]
pub(crate) fn forget(py: Python<'_>, slot: u32, epoch: u32) {
    let mut table = TABLE.get_mut(py);
    let known = &mut table[place(slot)];
    if known.is_of(slot, epoch) {
        known.length = 0;
    }
}

/// The bytes of a value and their sender, where they are remembered.
pub(crate) fn bytes(py: Python<'_>, slot: u32, epoch: u32) -> Option<(Vec<u8>, Sender)> {
    let table = TABLE.get(py);
    let known = &table[place(slot)];
    known.is_of(slot, epoch).then(|| (known.bytes[..known.length].to_vec(), known.sender))
}

/// The bytes of a value that a worker sent, where they are remembered.
#[inline]
pub(crate) fn read_bytes(py: Python<'_>, slot: u32, epoch: u32) -> Option<[u8; BYTES_MAX]> {
    let table = TABLE.get(py);
    let known = &table[place(slot)];
    (known.is_of(slot, epoch) && known.sender == Sender::Worker).then_some(known.bytes)
}
