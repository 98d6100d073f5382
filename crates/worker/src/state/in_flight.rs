//! Collectives that the stream works on: the results that they will leave, and the memory that they
//! read until then.

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
    /// Results that it leaves, one for each value of its bucket.
    pub awaited: SmallVec<[Awaited<V>; 1]>,
    /// The memory that it or other members read.
    pub reads: SmallVec<[StorageId; 2]>,
    pub bytes: u64,
    /// Negotiation, if a backend runs it.
    pub negotiation: Option<Box<Negotiation<R>>>,
}

/// Result of a collective for one value.
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

    /// Returns true if the stream still works on it.
    pub fn is_moving(&self) -> bool {
        self.negotiation.as_ref().is_none_or(|negotiation| !negotiation.is_finished())
    }

    /// Returns true if one of its results is awaited.
    pub fn is_awaited(&self) -> bool {
        self.awaited.iter().any(|awaited| awaited.output.is_some())
    }

    /// The result of a collective of one value.
    pub fn result_mut(&mut self) -> Option<&mut V> {
        let awaited = self.awaited.first_mut()?;
        awaited.result.as_mut().map(|held| &mut held.value)
    }
}
