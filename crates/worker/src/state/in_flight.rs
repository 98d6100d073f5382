//! Collectives that the stream works on: what they will leave, and what they read until then.

use super::negotiation::Negotiation;
use crate::failure::FailedInstruction;
use crate::table::{Held, StorageId};
use gt_protocol::Id;
use smallvec::SmallVec;

/// A collective in flight.
#[derive(Debug)]
pub struct InFlight<V, R> {
    pub ticket: u64,
    pub origin: FailedInstruction,
    /// What it leaves, of each value of its bucket.
    pub awaited: SmallVec<[Awaited<V>; 1]>,
    /// The memory that is read, by it or by others.
    pub reads: SmallVec<[StorageId; 2]>,
    pub bytes: u64,
    /// Where a backend moves it.
    pub negotiation: Option<Box<Negotiation<R>>>,
}

/// What a collective will leave of one value.
#[derive(Debug)]
pub struct Awaited<V> {
    /// Its slot, unless that was freed meanwhile.
    pub output: Option<Id>,
    pub result: Option<Held<V>>,
}

impl<V, R> InFlight<V, R> {
    pub fn new(ticket: u64, origin: FailedInstruction) -> Self {
        let (awaited, reads) = (SmallVec::new(), SmallVec::new());
        Self { ticket, origin, awaited, reads, bytes: 0, negotiation: None }
    }

    /// Whether the stream has something to do for it.
    pub fn is_moving(&self) -> bool {
        self.negotiation.as_ref().is_none_or(|negotiation| !negotiation.is_finished())
    }

    /// Whether somebody looks for a result of it.
    pub fn is_awaited(&self) -> bool {
        self.awaited.iter().any(|awaited| awaited.output.is_some())
    }

    /// The result of a collective of one value.
    pub fn result_mut(&mut self) -> Option<&mut V> {
        let awaited = self.awaited.first_mut()?;
        awaited.result.as_mut().map(|held| &mut held.value)
    }
}
