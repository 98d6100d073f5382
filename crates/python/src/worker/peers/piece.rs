//! A piece of a message: the words before its bytes, and one that is kept until somebody asks for it.

use gt_protocol::message::{self, FromWorker};
use gt_transport::HEAD_WORDS;
use gt_worker::{Cause, Front, MessageId};

const KIND_BYTES: u32 = 0;
const KIND_FAILURE: u32 = 1;

/// What a piece is: its message, and how long that is.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub message: MessageId,
    pub total: u64,
    pub is_failure: bool,
}

impl Head {
    pub const fn bytes(message: MessageId, total: u64) -> Self {
        Self { message, total, is_failure: false }
    }

    pub const fn failure(message: MessageId) -> Self {
        Self { message, total: 0, is_failure: true }
    }

    pub fn words(&self) -> [u32; HEAD_WORDS] {
        let ([a, b], [c, d]) = (halves(self.message.tag), halves(self.total));
        let kind = if self.is_failure { KIND_FAILURE } else { KIND_BYTES };
        [a, b, self.message.hop, kind, c, d, 0, 0]
    }

    /// `None` where another version of us wrote them.
    pub fn read(words: &[u32; HEAD_WORDS]) -> Option<Self> {
        let &[a, b, hop, kind, c, d, 0, 0] = words else { return None };
        let is_failure = match kind {
            KIND_BYTES => false,
            KIND_FAILURE => true,
            _ => return None,
        };
        Some(Self {
            message: MessageId { tag: joined(a, b), hop },
            total: joined(c, d),
            is_failure,
        })
    }
}

/// A piece that was taken off its link.
#[derive(Debug)]
pub struct Kept {
    total: u64,
    part: Result<Vec<u8>, Cause>,
    read: usize,
    /// Bytes that it had on its way.
    length: usize,
}

impl Kept {
    pub fn new(head: &Head, bytes: &[u8]) -> Self {
        let part = if head.is_failure { Err(cause(bytes)) } else { Ok(bytes.to_vec()) };
        Self { total: head.total, part, read: 0, length: bytes.len() }
    }

    pub const fn length(&self) -> usize {
        self.length
    }

    pub fn front(&self) -> Front<'_> {
        match &self.part {
            Ok(bytes) => {
                let bytes = bytes.get(self.read..).unwrap_or_default();
                Front::Bytes { total: self.total, bytes }
            }
            Err(cause) => Front::Failure(cause),
        }
    }

    /// Gives up bytes, or a failure; true if nothing is left.
    pub fn release(&mut self, bytes: usize) -> bool {
        self.read += bytes;
        self.part.as_ref().map_or(true, |all| self.read >= all.len())
    }
}

/// The words of a failure's message, as bytes.
pub fn failure(cause: &Cause) -> Vec<u8> {
    let mut words = Vec::new();
    // A cause has a form: its text is clipped.
    let _ = message::encode(&FromWorker::Failure(cause.message()), &mut words);
    bytemuck::cast_slice(&words).to_vec()
}

/// The failure behind the bytes; what cannot be read is one too.
pub fn cause(bytes: &[u8]) -> Cause {
    let words: Vec<u32> =
        bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if let Ok((FromWorker::Failure(failure), _)) = message::decode(&words) {
        return Cause::from(&failure);
    }
    let text = "another worker's failure cannot be read";
    let fault = gt_worker::Fault::new(message::FailureClass::Protocol, text);
    Cause { session: 0, tag: 0, op: None, fault }
}

/// Low word, high word.
fn halves(value: u64) -> [u32; 2] {
    let bytes = value.to_le_bytes();
    let (words, _) = bytes.as_chunks::<4>();
    let word = |place: usize| words.get(place).map_or(0, |word| u32::from_le_bytes(*word));
    [word(0), word(1)]
}

fn joined(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
