//! Payloads of uploads to a process of this host: large ones go through a slab, the others among
//! the words.

use gt_protocol::wire::{self, EncodeError, PAYLOAD_BYTES_MAX};
use gt_protocol::{Attr, Instruction, Op};
use gt_transport::slab::PAYLOAD_BYTES_MIN;
use gt_transport::{CHUNK_BYTES_MAX, HEAD_WORDS, SlabWriter};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

/// Time for which a sender polls for a free slot: long enough to copy some twenty chunks.
const POLL: Duration = Duration::from_micros(200);
/// Time for which a sender then sleeps before it looks for signals and a dead peer.
const SLEEP: Duration = Duration::from_millis(20);

/// A slab through which payloads are sent. Threads wait on it without the GIL.
#[derive(Clone)]
pub(crate) struct Payloads(Arc<Mutex<SlabWriter>>);

impl Payloads {
    pub(crate) fn new(writer: SlabWriter) -> Self {
        Self(Arc::new(Mutex::new(writer)))
    }

    /// Returns true if a sender has to wait. Payloads for a peer that corrupted the slab go among
    /// the words.
    pub(crate) fn is_full(&self) -> bool {
        match self.0.try_lock() {
            Ok(mut slab) => slab.slot().is_none() && !slab.is_corrupt(),
            // The thread that holds the lock waits for a free slot.
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(_)) => false,
        }
    }

    /// Waits for a free slot, for a limited time.
    pub(crate) fn wait(&self) {
        if let Ok(mut slab) = self.0.lock() {
            slab.wait(POLL, SLEEP);
        }
    }

    fn put(&self, offset: i64, bytes: &[u8]) -> bool {
        let Ok(mut slab) = self.0.try_lock() else { return false };
        let slot = slab.slot().and_then(|slot| slot.get_mut(..bytes.len()));
        let Some(slot) = slot else { return false };
        slot.copy_from_slice(bytes);
        let words = bytemuck::cast::<i64, [u32; 2]>(offset);
        let mut head = [0; HEAD_WORDS];
        for (place, word) in head.iter_mut().zip(words) {
            *place = word;
        }
        slab.publish(&head, bytes.len())
    }
}

/// Appends an instruction's words; a large payload goes through the slab if that has a free slot.
pub(crate) fn encode(
    instruction: &Instruction<'_>,
    payloads: Option<&Payloads>,
    out: &mut Vec<u32>,
) -> Result<(), EncodeError> {
    let length = instruction.payload.len();
    if instruction.op != Op::Chunk || length < PAYLOAD_BYTES_MIN {
        return wire::encode(instruction, out);
    }
    let &Attr::Int(offset) = instruction.attr("offset") else {
        return wire::encode(instruction, out);
    };
    let without = |offset: i64, payload| {
        let mut chunk = Instruction { payload, ..instruction.clone() };
        if let Some(place) = chunk.attrs.first_mut() {
            *place = Attr::Int(offset);
        }
        chunk
    };
    if length <= CHUNK_BYTES_MAX
        && payloads.is_some_and(|slab| slab.put(offset, instruction.payload))
    {
        return wire::encode(&without(offset, &[]), out);
    }
    let mut at = offset;
    for chunk in instruction.payload.chunks(PAYLOAD_BYTES_MAX) {
        wire::encode(&without(at, chunk), out)?;
        at += i64::try_from(chunk.len()).expect("a chunk has at most PAYLOAD_BYTES_MAX");
    }
    Ok(())
}
