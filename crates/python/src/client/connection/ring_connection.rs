//! The connection to a dispatcher process on this host: a ring each way.

use super::answers::Answers;
use super::incoming::take_messages;
use super::payload::{self, Payloads};
use super::ring_inbox::ring_inbox;
use super::{Connection, SharedInbox};
use gt_protocol::message::{self, FromClient};
use gt_protocol::wire::Frees;
use gt_protocol::{Instruction, Meta, Op};
use gt_server::Backlog;
use gt_transport::{Consumer, HostStream, Producer, RingError, SlabReader, set_short_slice};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Ring words that one instruction may need: the longest payload and its header.
const ROOM_WORDS: usize = 9 * 1024;

pub(crate) struct RingConnection {
    producer: Producer,
    inbox: SharedInbox,
    /// TCP connection on which the session began: the session ends with it.
    life_line: Option<HostStream>,
    address: String,
    scratch: Vec<u32>,
    /// Words that did not fit into the ring: of an instruction that is longer than usual.
    backlog: Backlog,
    /// Frees that go with the next words.
    frees: Frees,
    room: usize,
    slabs: Option<Slabs>,
}

/// Slabs for bytes that are too large for the rings.
pub(crate) struct Slabs {
    pub payloads: Payloads,
    pub chunks: SlabReader,
}

impl RingConnection {
    pub(crate) fn new(
        (read, write, waker): (OwnedFd, OwnedFd, OwnedFd),
        socket: UnixStream,
        life_line: Option<HostStream>,
        address: &str,
        slabs: Option<Slabs>,
    ) -> Result<Self, RingError> {
        let mut producer = Producer::new(write)?;
        producer.set_waker(waker);
        let room = ROOM_WORDS.min(producer.capacity() / 2);
        let inbox = ring_inbox(Consumer::new(read)?, Arc::new(OwnedFd::from(socket)));
        // A woken thread must be scheduled at once where client and dispatcher share a core.
        let _ = set_short_slice();
        Ok(Self {
            producer,
            inbox,
            life_line,
            address: address.to_owned(),
            scratch: Vec::new(),
            backlog: Backlog::default(),
            frees: Frees::default(),
            room,
            slabs,
        })
    }

    fn write(&mut self, words: &[u32]) {
        self.backlog.send(&mut self.producer, &[self.frees.words(), words]);
        self.frees.clear();
    }
}

impl Connection for RingConnection {
    fn has_room(&mut self) -> bool {
        self.backlog.flush(&mut self.producer);
        self.backlog.is_empty() && self.producer.has_space(self.room)
    }

    fn is_on_this_host(&self) -> bool {
        true
    }

    fn has_ample_room(&mut self) -> bool {
        self.has_room() && self.producer.has_resumed(self.room)
    }

    fn send(
        &mut self,
        instruction: &Instruction<'_>,
        _answers: &mut Answers,
    ) -> Result<(), String> {
        let mut words = std::mem::take(&mut self.scratch);
        words.clear();
        let payloads = self.slabs.as_ref().map(|slabs| &slabs.payloads);
        let encoded = payload::encode(instruction, payloads, &mut words);
        if encoded.is_ok() {
            self.write(&words);
        }
        self.scratch = words;
        encoded.map_err(|error| error.to_string())
    }

    fn send_words(
        &mut self,
        _op: Op,
        words: &mut [u32],
        _outputs: &[Meta],
        _answers: &mut Answers,
    ) -> Result<(), String> {
        self.write(words);
        Ok(())
    }

    fn release(&mut self, slots: &[u32], _answers: &mut Answers) -> Result<(), String> {
        self.frees.add(slots);
        Ok(())
    }

    fn flush(&mut self) {
        self.write(&[]);
    }

    fn full_payloads(&mut self) -> Option<Payloads> {
        self.slabs.as_ref().map(|slabs| slabs.payloads.clone()).filter(Payloads::is_full)
    }

    fn say(&mut self, message: &FromClient<'_>, answers: &mut Answers) {
        let mut words = Vec::new();
        match message::encode(message, &mut words) {
            Ok(()) => self.write(&words),
            Err(error) => answers.fail_all(&error.to_string()),
        }
    }

    fn cancel(&mut self, answers: &mut Answers) {
        // The words in front of it wait for their turns.
        self.producer.announce();
        self.say(&FromClient::Cancel, answers);
    }

    fn inboxes(&self) -> Vec<SharedInbox> {
        vec![Arc::clone(&self.inbox)]
    }

    fn receive(&mut self, _index: usize, words: &[u32], answers: &mut Answers) {
        take_messages(words, answers, self.slabs.as_mut().map(|slabs| &mut slabs.chunks));
    }

    fn lost(&mut self, _index: usize, reason: &str, answers: &mut Answers) {
        answers
            .closed
            .get_or_insert_with(|| format!("the dispatcher at {}: {reason}", self.address));
    }

    fn address(&self) -> Option<&str> {
        Some(&self.address)
    }

    fn describe(&self) -> String {
        format!("dispatcher at {}, by shared memory", self.address)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn close(&mut self) {
        self.life_line = None;
    }
}
