//! Answers to a client, compared with the meaning of its program.

use super::{Client, OpenRequest, REQUESTS_PER_CLIENT, site_of};
use crate::arithmetic::tensor::{elements, narrow, to_dims};
use crate::oracle::{Expectation, Root};
use gt_protocol::message::{Failure, FailureClass, Reply, SpacedReply, ToClient};

/// Knowledge of faults that a client does not have.
pub trait Evidence {
    /// Returns true if a worker that held the value of this number, or one of its operands, has
    /// crashed.
    fn lost(&self, number: u64) -> bool;
    /// Returns true if there was no worker when it was planned.
    fn homeless(&self, number: u64) -> bool;
}

impl Client {
    /// Handles a message of the dispatcher.
    ///
    /// # Errors
    /// The contradiction with the program.
    pub fn receive_message(
        &mut self,
        session: u32,
        message: &ToClient<'_>,
        evidence: &dyn Evidence,
    ) -> Result<(), String> {
        if self.is_nonsense {
            return self.check_address(session, message);
        }
        match message {
            ToClient::Reply(reply) => self.receive_reply(reply, (reply.count, reply.count)),
            ToClient::SpacedReply(SpacedReply { reply, run, stride }) => {
                self.receive_reply(reply, (*run, *stride))
            }
            ToClient::Done { request } => self.receive_done(*request, evidence),
            ToClient::Failure(failure) => self.receive_failure(session, failure, evidence),
            ToClient::FailedReply { request, failure } => {
                self.receive_failed_reply(session, *request, failure, evidence)
            }
            ToClient::WorkerStats { stats, .. } => match self.pending.get(&stats.request) {
                Some(OpenRequest::Stats) => Ok(()),
                other => Err(format!("stats for request {}, which is {other:?}", stats.request)),
            },
            ToClient::WorkerLeft { .. } | ToClient::WorkerJoined { .. } => Ok(()),
            ToClient::Description { request, .. } => match self.pending.remove(request) {
                Some(OpenRequest::Rebalance) => {
                    self.answers += 1;
                    Ok(())
                }
                other => Err(format!("a description for request {request}, which is {other:?}")),
            },
            ToClient::Goodbye { .. } => Err(format!("nobody asked for {message:?}")),
        }
    }

    /// Checks the addressee of a message; for a program without meaning nothing else is known.
    fn check_address(&self, session: u32, message: &ToClient<'_>) -> Result<(), String> {
        let own = self.first_request..self.first_request + REQUESTS_PER_CLIENT;
        let right = match message {
            ToClient::Reply(reply) | ToClient::SpacedReply(SpacedReply { reply, .. }) => {
                own.contains(&reply.request)
            }
            ToClient::Done { request } => own.contains(request),
            ToClient::WorkerStats { stats, .. } => own.contains(&stats.request),
            ToClient::Failure(failure) => failure.session == session,
            ToClient::FailedReply { request, failure } => {
                own.contains(request) && failure.session == session
            }
            ToClient::WorkerLeft { .. } | ToClient::WorkerJoined { .. } => true,
            // Only nonsense requests one.
            ToClient::Description { request, .. } => self.is_nonsense && own.contains(request),
            ToClient::Goodbye { .. } => false,
        };
        if right { Ok(()) } else { Err(format!("a message that is another's: {message:?}")) }
    }

    /// Handles an answer in runs, in any order; each requested element must come once.
    fn receive_reply(
        &mut self,
        reply: &Reply<'_>,
        (run, stride): (u64, u64),
    ) -> Result<(), String> {
        let request = reply.request;
        let Some(OpenRequest::Read { value, expected, start, arrived }) =
            self.pending.get_mut(&request)
        else {
            return Err(format!("a reply for request {request}, which is not open"));
        };
        if self.cancelled.has_unknown_elements(*value) {
            for range in 0..reply.count {
                let place = reply.start + range / run.max(1) * stride + range % run.max(1);
                let position = place.checked_sub(*start).and_then(|at| usize::try_from(at).ok());
                if let Some(has_arrived) = position.and_then(|at| arrived.get_mut(at)) {
                    *has_arrived = true;
                }
            }
            if arrived.iter().all(|&has_arrived| has_arrived) {
                self.pending.remove(&request);
                self.answers += 1;
            }
            return Ok(());
        }
        // Some shards of a failed value may arrive: they were sent before the failure was known, or
        // are all that was requested.
        let is_spoiled = matches!(expected, Expectation::Failed { certain: true, .. });
        let (Expectation::Value(tensor) | Expectation::Failed { shape: Some(tensor), .. }) =
            expected
        else {
            // Shards of a value that failed on only one worker may come before the failure; never
            // all of them.
            if reply.count < reply.total {
                return Ok(());
            }
            return Err(format!("a reply for {value:?}, which should have failed: {expected:?}"));
        };
        if reply.dtype != tensor.dtype || reply.dims != to_dims(&tensor.dims) {
            let shape = to_dims(&tensor.dims);
            return Err(format!(
                "{value:?} is {:?} {} instead of {:?} {shape}",
                reply.dtype, reply.dims, tensor.dtype
            ));
        }
        if narrow(reply.total.cast_signed()) != arrived.len() {
            return Err(format!(
                "a reply to a read of {} elements, not {}",
                reply.total,
                arrived.len()
            ));
        }
        let got = elements(reply.dtype, reply.bytes);
        for (position, element) in (0..).zip(&got) {
            let place = reply.start + position / run.max(1) * stride + position % run.max(1);
            let right = usize::try_from(place).ok().and_then(|place| tensor.data.get(place));
            if right != Some(element) && !is_spoiled {
                return Err(format!("{value:?} is {element:?} at {place} instead of {right:?}"));
            }
            let position = place.checked_sub(*start).and_then(|place| usize::try_from(place).ok());
            match position.and_then(|place| arrived.get_mut(place)) {
                Some(has_arrived) if !*has_arrived => *has_arrived = true,
                Some(_) => return Err(format!("element {place} of {value:?} came twice")),
                None => return Err(format!("element {place} of {value:?} was not asked for")),
            }
        }
        if arrived.iter().all(|&has_arrived| has_arrived) {
            if is_spoiled && arrived.len() == tensor.data.len() {
                return Err(format!("all of {value:?}, which should have failed: {expected:?}"));
            }
            self.pending.remove(&request);
            self.answers += 1;
        }
        Ok(())
    }

    fn receive_done(&mut self, request: u64, evidence: &dyn Evidence) -> Result<(), String> {
        match self.pending.remove(&request) {
            Some(OpenRequest::Synchronize { before }) => {
                self.answers += 1;
                let roots = self.oracle.roots().range(..before);
                for (&number, &root) in roots {
                    let excused = evidence.lost(number)
                        || evidence.homeless(number)
                        || self.cancelled.excuses(number);
                    if root != Root::Perhaps && !excused && !self.reported.contains(&number) {
                        return Err(format!(
                            "synchronized, and nobody has told of the failure of %{number}"
                        ));
                    }
                }
                Ok(())
            }
            Some(OpenRequest::Stats) => {
                self.answers += 1;
                Ok(())
            }
            other => Err(format!("done with request {request}, which is {other:?}")),
        }
    }

    fn receive_failure(
        &mut self,
        session: u32,
        failure: &Failure<'_>,
        evidence: &dyn Evidence,
    ) -> Result<(), String> {
        if failure.class == FailureClass::Cancelled {
            return Err(format!("a cancel is reported: {failure:?}"));
        }
        self.reported.insert(failure.number);
        let known = self.oracle.roots().contains_key(&failure.number);
        check_failure(session, failure, known, evidence.lost(failure.number), evidence)
    }

    fn receive_failed_reply(
        &mut self,
        session: u32,
        request: u64,
        failure: &Failure<'_>,
        evidence: &dyn Evidence,
    ) -> Result<(), String> {
        self.failures += 1;
        let Some(OpenRequest::Read { value, expected, .. }) = self.pending.remove(&request) else {
            return Err(format!("a failure for request {request}, which is not open: {failure:?}"));
        };
        self.reported.insert(failure.number);
        let known = match &expected {
            Expectation::Failed { causes, .. } => causes.contains(&failure.number),
            // Elements that are not known may be wrong indices.
            Expectation::Value(_) => self.cancelled.has_unknown_elements(value),
        };
        let is_cancelled = failure.class == FailureClass::Cancelled;
        self.cancelled.answers += u64::from(is_cancelled);
        let known = if is_cancelled { self.cancelled.is_allowed(failure.number) } else { known };
        let (number, _) = value.parts();
        let lost = evidence.lost(number);
        check_failure(session, failure, known, lost, evidence)
            .map_err(|text| format!("{text}; read of %{number}, {expected:?}"))
    }
}

/// Checks that a failure is one that the program contains, or the loss of a worker that held the
/// value.
fn check_failure(
    session: u32,
    failure: &Failure<'_>,
    known: bool,
    lost: bool,
    evidence: &dyn Evidence,
) -> Result<(), String> {
    let number = failure.number;
    if failure.session != session {
        return Err(format!("session {session} is told of another's failure: {failure:?}"));
    }
    if failure.class == FailureClass::WorkerLost {
        let why = "no worker that held the value has crashed";
        return if lost { Ok(()) } else { Err(format!("{why}: {failure:?}")) };
    }
    if !known && !evidence.homeless(number) {
        return Err(format!("a failure that is not in the program: {failure:?}"));
    }
    if failure.tag != site_of(number) {
        return Err(format!("%{number} failed at site {}: {failure:?}", site_of(number)));
    }
    Ok(())
}
