//! What has come back: answers to this client's questions, and failures that nobody asked about.

use gt_protocol::message::{Failure, FailureClass, Message, Stats};
use gt_protocol::{Dims, Dtype, Op};
use std::collections::{BTreeMap, VecDeque};

/// Unread failures that are kept for `gt.synchronize()`; older ones have been counted.
const FAILURES_KEPT: usize = 64;

/// A failed instruction, as the client heard of it.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub number: u64,
    pub class: FailureClass,
    pub op: Option<Op>,
    pub site: u32,
    pub text: String,
}

/// The state of a question.
#[derive(Debug)]
pub(crate) enum Answer {
    Waiting(Piece),
    Read(Piece),
    Done(Vec<Stats>),
    Failed(Failed),
}

/// Elements that have come so far.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub bytes: Vec<u8>,
    pub dtype: Option<Dtype>,
    pub dims: Option<Dims>,
    start: u64,
    received: u64,
    stats: Vec<Stats>,
}

#[derive(Default)]
pub(crate) struct Answers {
    open: BTreeMap<u64, Answer>,
    unread: VecDeque<Failed>,
    /// Numbers of failures that a read has raised.
    next_request: u64,
    /// Reasons of workers that left since the last look.
    pub departures: Vec<String>,
    /// Set when the dispatcher said good-bye.
    pub closed: Option<String>,
}

impl Answers {
    /// Opens a question whose answer starts at element `start`.
    pub(crate) fn open(&mut self, start: u64) -> u64 {
        self.next_request += 1;
        self.open.insert(self.next_request, Answer::Waiting(Piece { start, ..Piece::default() }));
        self.next_request
    }

    /// The answer, once it is whole.
    pub(crate) fn take(&mut self, request: u64) -> Option<Answer> {
        match self.open.get(&request) {
            None | Some(Answer::Waiting(_)) => None,
            Some(Answer::Read(_) | Answer::Done(_) | Answer::Failed(_)) => {
                self.open.remove(&request)
            }
        }
    }

    /// Gives up on a question; a late answer is ignored.
    pub(crate) fn forget(&mut self, request: u64) {
        self.open.remove(&request);
    }

    /// The oldest failure that nobody has read.
    pub(crate) fn take_first_unread(&mut self) -> Option<Failed> {
        self.unread.pop_front()
    }

    pub(crate) fn take_unread(&mut self) -> Vec<Failed> {
        self.unread.drain(..).collect()
    }

    /// A failure that has been raised is not reported again.
    pub(crate) fn was_read(&mut self, number: u64) {
        self.unread.retain(|failed| failed.number != number);
    }

    pub(crate) fn receive(&mut self, message: &Message<'_>) {
        match message {
            Message::Reply(reply) => {
                let Some(Answer::Waiting(piece)) = self.open.get_mut(&reply.request) else {
                    return;
                };
                piece.add(reply.start, reply.total, reply.dtype, reply.dims, reply.bytes);
                piece.received += reply.count;
                if piece.received >= reply.total {
                    let whole = std::mem::take(piece);
                    self.open.insert(reply.request, Answer::Read(whole));
                }
            }
            Message::Done { request } => {
                if let Some(Answer::Waiting(piece)) = self.open.get_mut(request) {
                    let stats = std::mem::take(&mut piece.stats);
                    self.open.insert(*request, Answer::Done(stats));
                }
            }
            Message::Stats(stats) => {
                if let Some(Answer::Waiting(piece)) = self.open.get_mut(&stats.request) {
                    piece.stats.push(*stats);
                }
            }
            Message::Failure(failure) => {
                if self.unread.len() == FAILURES_KEPT {
                    self.unread.pop_front();
                }
                self.unread.push_back(own(failure));
            }
            Message::FailedReply { request, failure } => {
                if self.open.contains_key(request) {
                    self.open.insert(*request, Answer::Failed(own(failure)));
                }
            }
            Message::WorkerLeft { index, reason } => {
                self.departures.push(format!("worker {index} left: {reason}"));
            }
            Message::Goodbye { reason } => self.closed = Some((*reason).to_owned()),
            Message::WorkerJoined { .. } | Message::StatsRequest { .. } => {}
        }
    }

    /// Every open question fails: the connection is gone.
    pub(crate) fn fail_all(&mut self, text: &str) {
        for answer in self.open.values_mut() {
            if matches!(answer, Answer::Waiting(_)) {
                *answer = Answer::Failed(Failed {
                    number: 0,
                    class: FailureClass::Protocol,
                    op: None,
                    site: 0,
                    text: text.to_owned(),
                });
            }
        }
    }
}

impl Piece {
    fn add(&mut self, start: u64, total: u64, dtype: Dtype, dims: Dims, bytes: &[u8]) {
        if self.dtype.is_none() {
            let length = usize::try_from(total.saturating_mul(dtype.size())).unwrap_or(0);
            self.bytes = vec![0; length];
            self.dtype = Some(dtype);
            self.dims = Some(dims);
        }
        let offset = start.saturating_sub(self.start).saturating_mul(dtype.size());
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(place) = self.bytes.get_mut(offset..offset.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }
}

fn own(failure: &Failure<'_>) -> Failed {
    Failed {
        number: failure.number,
        class: failure.class,
        op: failure.op,
        site: failure.tag,
        text: failure.text.to_owned(),
    }
}
