//! Conclusion of collectives: their results, or their failures.

use crate::engine::Engine;
use crate::failure::{Broken, Cause};
use crate::replies::Replies;
use crate::state::{Awaited, InFlightOf, MachineState};
use crate::stream::{Driver, Ended, Outcome};
use gt_protocol::message::FromWorker;
use std::rc::Rc;

impl<E: Engine> MachineState<E> {
    /// Stores the results in their slots, and returns borrowed memory; a failure of the whole is
    /// reported once. A negotiation continues with its next round.
    pub fn conclude(
        &mut self,
        in_flight: InFlightOf<E>,
        ended: Ended<E::Borrowed>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) {
        let (bucket, outcome) = match ended.outcome {
            Outcome::Exchange { bucket, outcome } => (bucket, outcome),
            Outcome::Round(answers) => return self.resume(in_flight, answers, replies, driver),
        };
        let origin = in_flight.origin;
        self.engine.end_transfer(in_flight.ticket, &origin);
        let mut reported = |broken: Broken| {
            let cause = broken.cause(&origin);
            if matches!(broken, Broken::Fault(_)) {
                replies.send(&FromWorker::Failure(cause.message()));
            }
            Rc::new(cause)
        };
        let of_all = outcome.err().map(&mut reported);
        for (mut awaited, returned) in in_flight.awaited.into_iter().zip(bucket.into_values()) {
            let written = awaited.result.as_mut().map(|held| &mut held.value);
            let is_returned = returned
                .memory
                .map_or(Ok(()), |memory| self.engine.return_buffers(memory, written));
            let cause = match (returned.failure, &of_all, is_returned) {
                (Some(cause), _, _) => Some(Rc::new(cause)),
                (None, Some(cause), _) => Some(Rc::clone(cause)),
                (None, None, Err(fault)) => Some(reported(Broken::Fault(fault))),
                (None, None, Ok(())) => None,
            };
            self.put_awaited(awaited, cause);
        }
        for storage in in_flight.reads {
            self.table.release(storage);
        }
    }

    /// Stores a result, or its failure, in its slot.
    fn put_awaited(&mut self, awaited: Awaited<E::Value>, cause: Option<Rc<Cause>>) {
        match (cause, awaited.output, awaited.result) {
            (None, Some(id), Some(held)) => self.table.put_held(id, held),
            (cause, output, held) => {
                if let Some(held) = held {
                    self.table.release(held.storage);
                }
                if let (Some(cause), Some(id)) = (cause, output) {
                    self.table.poison(id, &cause);
                }
            }
        }
    }
}
