//! Credits of a shared ring, and outputs that cannot be sent.

use super::*;
use crate::link::{RING_WORDS, WordTarget};
use gt_protocol::message::ToClient;
use gt_protocol::{Instruction, wire};
use gt_transport::{Consumer, Producer};
use tokio::sync::oneshot;

const SESSION: SessionId = SessionId(1);
const BATCH: [u32; 500] = [0; 500];

fn one_worker() -> (Outbox, Consumer) {
    let ring = gt_transport::create(RING_WORDS).unwrap();
    let consumer = Consumer::new(ring.try_clone().unwrap()).unwrap();
    let mut outbox = Outbox::default();
    let target = WordTarget::Ring(Producer::new(ring).unwrap());
    outbox.add_worker(0, Outbound::new(target, oneshot::channel().0, None));
    (outbox, consumer)
}

/// Number of batches that are sent until the worker has got as much as it should.
fn batches(outbox: &mut Outbox, now: Instant, quiet: Duration) -> usize {
    let load = Load::Several(quiet);
    for count in 0.. {
        if !outbox.admit(SESSION, &[0], now, load, false) {
            return count;
        }
        outbox.words(0, &BATCH);
        outbox.flush();
    }
    0
}

#[test]
fn a_shared_ring_holds_what_the_worker_drains_in_an_eighth_of_the_quiet() {
    let (mut outbox, mut worker) = one_worker();
    let (start, quiet) = (Instant::now(), Duration::from_millis(4));
    // Its speed is unknown yet.
    assert_eq!(batches(&mut outbox, start, quiet), 2);
    // It takes 16 batches in 4 ms: 1000 words in half a millisecond, 4000 in two.
    for _ in 0..16 {
        outbox.words(0, &BATCH);
        outbox.flush();
        worker.read(&mut Vec::new(), BATCH.len());
    }
    let now = start + Duration::from_millis(4);
    worker.read(&mut Vec::new(), usize::from(u16::MAX));
    let taken = 18 * BATCH.len();
    for (quiet, eighth) in [(0, 0), (4, taken / 8), (16, taken / 2), (60_000, taken / 2)] {
        let expected = eighth.max(SHARED_WORDS).div_ceil(BATCH.len());
        let sent = batches(&mut outbox, now, Duration::from_millis(quiet));
        assert_eq!(sent, expected, "after {quiet} ms without a read");
        worker.read(&mut Vec::new(), usize::from(u16::MAX));
    }
}

#[test]
fn a_peer_that_misses_an_output_without_a_binary_form_is_given_up() {
    let (mut outbox, mut worker) = one_worker();
    let client = gt_transport::create(RING_WORDS).unwrap();
    let target = WordTarget::Ring(Producer::new(client).unwrap());
    outbox.add_session(SESSION, Outbound::new(target, oneshot::channel().0, None));
    outbox.words(0, &BATCH);
    // The relu has no operand, and the texts are longer than a frame's.
    let text = "x".repeat(wire::TEXT_BYTES_MAX + 1);
    outbox.worker(0, &Instruction::new(Op::Relu));
    outbox.worker_message(0, &ToWorker::Goodbye { reason: &text });
    outbox.session(SESSION, &ToClient::Goodbye { reason: &text });
    let lost = outbox.take_lost();
    let form = "an output of the dispatcher has no binary form: ";
    let [
        LostPeer::Worker(0, first),
        LostPeer::Worker(0, second),
        LostPeer::Session(SESSION, third),
    ] = &*lost
    else {
        panic!("{lost:?}")
    };
    for (reason, name) in [(first, "relu"), (second, "goodbye"), (third, "goodbye")] {
        assert!(reason.strip_prefix(form).is_some_and(|rest| rest.contains(name)), "{reason}");
    }
    outbox.flush();
    let mut words = Vec::new();
    worker.read(&mut words, usize::from(u16::MAX));
    assert_eq!(words, BATCH, "nothing of the others was sent");
}
