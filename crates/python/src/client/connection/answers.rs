//! Messages that have come back: answers to this client's requests, and unrequested failures.

use super::new_array::NewArray;
use gt_protocol::message::{Failure, FailureClass, Reply, SpacedReply, Stats, ToClient};
use gt_protocol::{Dtype, Op};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of unread failures that are kept to be reported; only the count of earlier ones is kept.
const FAILURES_KEPT: usize = 64;
/// Instructions whose operator is kept for a failure that is still to come: as many as the dispatcher keeps source
/// positions of (128 KiB).
const OPS_KEPT: usize = 1 << 16;

/// A failed instruction, as the client heard of it.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub number: u64,
    pub class: FailureClass,
    pub op: Option<Op>,
    pub site: u32,
    pub text: String,
}

/// The state of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Waiting(Elements),
    Read(Elements),
    /// The counters of each worker, where they were asked for.
    Done(Vec<(u32, Stats)>),
    Described(String),
    Failed(Failed),
}

/// Elements that have arrived so far.
#[derive(Debug, Default)]
pub(crate) struct Elements {
    bytes: Destination,
    /// `None` for a request that elements do not answer.
    range: Option<ReadRange>,
    received: u64,
    stats: Vec<(u32, Stats)>,
}

/// Elements that a read asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRange {
    pub start: u64,
    pub count: u64,
    pub dtype: Dtype,
}

/// Destination of an answer's bytes: a large answer is written directly into the reader's array.
#[derive(Debug)]
pub(crate) enum Destination {
    Own(Vec<u8>),
    Array(NewArray),
}

#[derive(Default)]
pub(crate) struct Answers {
    open: BTreeMap<u64, Answer>,
    unread: VecDeque<Failed>,
    /// Number of unread failures that were dropped because too many were kept.
    forgotten: u64,
    /// Losses of workers that have been reported since the last one joined.
    losses: Vec<String>,
    next_request: u64,
    /// Operator of instruction n, at index n modulo [`OPS_KEPT`]: a plan may fail in an operator
    /// that the user did not call.
    ops: Vec<Op>,
    /// Number of instructions with results that were sent: the number of the next one.
    numbered: u64,
    /// Workers of the dispatcher, as far as it has reported them.
    pub workers: BTreeSet<u32>,
    /// Workers that have left, with the reasons, of which the user has not been told.
    left: BTreeMap<u32, String>,
    /// Workers that have left, as the user knows, and whose place is empty.
    vacant: BTreeSet<u32>,
    /// Workers that have joined after layouts were decided, of which the user does not know yet.
    late: BTreeSet<u32>,
    /// Texts about workers for the user, until they are printed.
    pub notices: Vec<String>,
    /// Reason that the dispatcher gave when it closed the session; `None` before.
    pub closed: Option<String>,
}

impl Answers {
    /// Opens a request that elements do not answer.
    pub(crate) fn open(&mut self) -> u64 {
        self.open_waiting(Elements::default())
    }

    /// Opens request 0, which the dispatcher answers without being asked: the description of a
    /// named session.
    pub(crate) fn open_first(&mut self) {
        self.open.entry(0).or_insert_with(|| Answer::Waiting(Elements::default()));
    }

    /// Opens a read whose elements are written to `bytes`.
    pub(crate) fn open_read(&mut self, range: ReadRange, bytes: Destination) -> u64 {
        self.open_waiting(Elements { bytes, range: Some(range), ..Elements::default() })
    }

    fn open_waiting(&mut self, elements: Elements) -> u64 {
        self.next_request += 1;
        self.open.insert(self.next_request, Answer::Waiting(elements));
        self.next_request
    }

    /// The answer, once it is whole.
    pub(crate) fn take(&mut self, request: u64) -> Option<Answer> {
        match self.open.get(&request) {
            None | Some(Answer::Waiting(_)) => None,
            Some(Answer::Read(_) | Answer::Done(_) | Answer::Described(_) | Answer::Failed(_)) => {
                self.open.remove(&request)
            }
        }
    }

    /// The answer as far as it has arrived; later parts are ignored.
    pub(crate) fn take_part(&mut self, request: u64) -> Option<Answer> {
        self.open.remove(&request)
    }

    /// Drops a request; a late answer is ignored.
    pub(crate) fn forget(&mut self, request: u64) {
        self.open.remove(&request);
    }

    /// Counts an instruction with results that is being sent; the dispatcher counts the same.
    #[inline]
    pub(crate) fn number(&mut self, op: Op) {
        if !op.info().has_outputs() {
            return;
        }
        let place = usize::try_from(self.numbered).expect("usize has 64 bits") % OPS_KEPT;
        match self.ops.get_mut(place) {
            Some(kept) => *kept = op,
            None => self.ops.push(op),
        }
        self.numbered += 1;
    }

    /// Continues the numbers of an earlier client of the session.
    pub(crate) fn continue_numbers(&mut self, next: u64) {
        self.numbered = next;
        let kept = usize::try_from(next).map_or(OPS_KEPT, |next| next.min(OPS_KEPT));
        self.ops.clear();
        self.ops.resize(kept, Op::Synchronize);
    }

    /// Number of instructions with results that were sent in this session.
    pub(crate) fn numbered(&self) -> u64 {
        self.numbered
    }

    /// The operator that the user called in instruction `number`, if that is recent enough.
    fn op_of(&self, number: u64) -> Option<Op> {
        let age = usize::try_from(self.numbered.checked_sub(number)?).ok()?;
        let place = usize::try_from(number).ok()? % OPS_KEPT;
        if (1..=OPS_KEPT).contains(&age) { self.ops.get(place).copied() } else { None }
    }

    /// Copies a failure and adds the user's operator.
    fn own(&self, failure: &Failure<'_>) -> Failed {
        let named = failure.class != FailureClass::Protocol;
        Failed {
            number: failure.number,
            class: failure.class,
            op: self.op_of(failure.number).filter(|_| named).or(failure.op),
            site: failure.tag,
            text: failure.text.to_owned(),
        }
    }

    /// Returns true if a failure only repeats that a worker is gone: all collectives in flight fail
    /// with it, and only one failure is reported.
    fn knows_loss(&mut self, failure: &Failure<'_>) -> bool {
        if failure.class != FailureClass::WorkerLost {
            return false;
        }
        let reason = failure.text.split("; ").next().unwrap_or_default();
        let known = self.losses.iter().any(|loss| loss == reason);
        if !known && self.losses.len() < FAILURES_KEPT {
            self.losses.push(reason.to_owned());
        }
        known
    }

    /// Takes the oldest unread failure.
    pub(crate) fn take_first_unread(&mut self) -> Option<Failed> {
        self.unread.pop_front()
    }

    /// Takes all unread failures, and the number of those that were dropped.
    pub(crate) fn take_unread(&mut self) -> (Vec<Failed>, u64) {
        (self.unread.drain(..).collect(), std::mem::take(&mut self.forgotten))
    }

    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Marks a failure as raised: it is not reported again.
    pub(crate) fn was_read(&mut self, number: u64) {
        self.unread.retain(|failed| failed.number != number);
    }

    pub(crate) fn receive(&mut self, message: &ToClient<'_>) {
        match message {
            ToClient::Reply(reply) => self.answered(reply, (reply.count, reply.count)),
            ToClient::SpacedReply(SpacedReply { reply, run, stride }) => {
                self.answered(reply, (*run, *stride));
            }
            ToClient::Done { request } => {
                if let Some(Answer::Waiting(elements)) = self.open.get_mut(request) {
                    let stats = std::mem::take(&mut elements.stats);
                    self.open.insert(*request, Answer::Done(stats));
                }
            }
            ToClient::WorkerStats { worker, stats } => {
                if let Some(Answer::Waiting(elements)) = self.open.get_mut(&stats.request) {
                    elements.stats.push((*worker, *stats));
                }
            }
            ToClient::Failure(failure) if self.knows_loss(failure) => {}
            ToClient::Failure(failure) => {
                if self.unread.len() == FAILURES_KEPT {
                    self.unread.pop_front();
                    self.forgotten += 1;
                }
                let failed = self.own(failure);
                self.unread.push_back(failed);
            }
            ToClient::FailedReply { request, failure } => {
                if self.open.contains_key(request) {
                    let failed = self.own(failure);
                    self.open.insert(*request, Answer::Failed(failed));
                }
            }
            ToClient::WorkerJoined { index, is_late } => {
                self.losses.clear();
                self.workers.insert(*index);
                if let Some(reason) = self.left.remove(index) {
                    let text = format!("worker {index} is gone: {reason}");
                    self.notices.push(format!("{text}; another took its place"));
                } else if self.vacant.remove(index) {
                    self.notices.push(format!("another worker took the place of worker {index}"));
                } else if *is_late {
                    self.late.insert(*index);
                }
            }
            ToClient::WorkerLeft { index, reason } => {
                self.workers.remove(index);
                self.late.remove(index);
                self.left.insert(*index, (*reason).to_owned());
            }
            ToClient::Goodbye { reason } => self.closed = Some((*reason).to_owned()),
            ToClient::Description { request, text } => {
                if self.open.contains_key(request) {
                    self.open.insert(*request, Answer::Described((*text).to_owned()));
                }
            }
        }
    }

    /// Texts about workers for the user: each is returned once.
    pub(crate) fn take_notices(&mut self) -> Vec<String> {
        for (index, reason) in std::mem::take(&mut self.left) {
            self.vacant.insert(index);
            self.notices.push(format!("worker {index} is gone: {reason}; its place is empty"));
        }
        let late = std::mem::take(&mut self.late);
        if !late.is_empty() {
            self.notices.push(late_text(&late, self.workers.len()));
        }
        std::mem::take(&mut self.notices)
    }

    /// Elements of an answer, in runs. Others than those that were asked for fail the request: the
    /// reader's array would keep bytes that nobody sent.
    fn answered(&mut self, reply: &Reply<'_>, runs: (u64, u64)) {
        let Some(Answer::Waiting(elements)) = self.open.get_mut(&reply.request) else { return };
        if let Err(text) = elements.add(reply, runs) {
            self.open.insert(reply.request, Answer::Failed(Failed::of_connection(text)));
            return;
        }
        elements.received += reply.count;
        if elements.received >= reply.total {
            let whole = std::mem::take(elements);
            self.open.insert(reply.request, Answer::Read(whole));
        }
    }

    /// Fails every open request: the connection is gone.
    pub(crate) fn fail_all(&mut self, text: &str) {
        for answer in self.open.values_mut() {
            if matches!(answer, Answer::Waiting(_)) {
                *answer = Answer::Failed(Failed::of_connection(text.to_owned()));
            }
        }
    }
}

/// Notice of workers that have joined after layouts were decided.
fn late_text(late: &BTreeSet<u32>, count: usize) -> String {
    let mut names: Vec<String> = late.iter().map(ToString::to_string).collect();
    let last = names.pop().unwrap_or_default();
    let joined = match &*names {
        [] => format!("worker {last} has joined"),
        _ => format!("workers {} and {last} have joined", names.join(", ")),
    };
    format!(
        "{joined}, {count} are there; what this session has already stays on those from before \
         until gt.rebalance()"
    )
}

impl Failed {
    /// A failure of no instruction: the other side broke the protocol, or is gone.
    fn of_connection(text: String) -> Self {
        let (number, class) = (u64::MAX, FailureClass::Protocol);
        Self { number, class, op: None, site: 0, text }
    }
}

impl Elements {
    /// The counters of the workers that have answered.
    pub(crate) fn into_stats(self) -> Vec<(u32, Stats)> {
        self.stats
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Destination::Own(bytes) => bytes,
            Destination::Array(_) => &[],
        }
    }

    /// Writes elements to their places; `run` adjacent ones every `stride`.
    ///
    /// # Errors
    /// They are not among those that the read asked for.
    fn add(&mut self, reply: &Reply<'_>, (run, stride): (u64, u64)) -> Result<(), String> {
        let &Reply { start, count, total, dtype, bytes, .. } = reply;
        let (sent, sent_dtype) = (bytes.len(), dtype.short());
        let Some(range) = self.range else {
            return Err(format!(
                "the dispatcher answered with {count} {sent_dtype} what asked for no elements"
            ));
        };
        let size = range.dtype.size();
        let runs = if count == 0 { 0 } else { count / run.max(1) };
        let first = start.checked_sub(range.start);
        let last = runs.saturating_sub(1).saturating_mul(stride).saturating_add(run);
        let end = first.map_or(u64::MAX, |first| first.saturating_add(last));
        let is_inside = dtype == range.dtype
            && total == range.count
            && end <= range.count
            && self.received.saturating_add(count) <= total
            && runs.saturating_mul(run) == count
            && u64::try_from(sent).ok() == count.checked_mul(size);
        if !is_inside {
            return Err(format!(
                "the dispatcher answered a read of {} {} from {} on with {count} of {total} {sent_dtype} \
                 from {start} on, {run} every {stride}, in {sent} bytes",
                range.count,
                range.dtype.short(),
                range.start
            ));
        }
        let bytes_of = |elements: u64| {
            usize::try_from(elements.saturating_mul(size)).expect("usize has 64 bits")
        };
        if let Destination::Own(own) = &mut self.bytes
            && own.is_empty()
        {
            *own = vec![0; bytes_of(total)];
        }
        let Some(first) = first.filter(|_| count > 0) else { return Ok(()) };
        let whole = self.bytes.as_mut();
        let length = whole.len();
        assert!(bytes_of(end) <= length, "{end} elements end behind an array of {length} bytes");
        let (run, stride) = (bytes_of(run), bytes_of(stride));
        for (run, place) in bytes.chunks(run).zip(whole[bytes_of(first)..].chunks_mut(stride)) {
            place[..run.len()].copy_from_slice(run);
        }
        Ok(())
    }
}

impl Default for Destination {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Destination {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Array(array) => array.as_mut(),
        }
    }
}
