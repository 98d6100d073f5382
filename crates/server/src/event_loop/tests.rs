//! An event loop dies between any two stores, another one that has its journal goes on, and the
//! peers get what they get undisturbed.

#![allow(clippy::wildcard_enum_match_arm, reason = "other messages are not expected")]

mod framed_wires;
mod priorities;

use super::EventLoop;
use crate::journal::{Journal, Party};
use crate::link::{PeerLink, RING_WORDS, SlabPayloads, WordSource, WordTarget};
use crate::outbox::Outbox;
use crate::waker::Waker;
use framed_wires::{FramedWires, inherited};
use gt_dispatcher::Dispatcher;
use gt_protocol::message::{self, FromWorker, Reply, ToClient, ToWorker};
use gt_protocol::wire::{self, cut};
use gt_protocol::{Attr, Dims, Dtype, Id, Instruction, Op, Operand};
use gt_transport::slab::PAYLOAD_BYTES_MIN;
use gt_transport::{Consumer, HEAD_WORDS, Producer, SlabReader, SlabWriter};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

const ELEMENTS: i64 = 4096;
const STEPS: u32 = 60;
/// Stores from one death to the next.
const STRIDE: usize = 23;

/// Descriptors of one peer's rings and slabs, and its own ends.
struct Wires {
    up: OwnedFd,
    down: OwnedFd,
    slab_up: OwnedFd,
    slab_down: OwnedFd,
    words: Vec<u32>,
    producer: Producer,
    consumer: Consumer,
    writer: SlabWriter,
    reader: SlabReader,
    /// Frames in place of the rings and slabs, if it is connected by TCP.
    frames: Option<FramedWires>,
}

impl Wires {
    fn new() -> Self {
        let ring = || gt_transport::create(RING_WORDS).unwrap();
        let slab = || gt_transport::slab::create().unwrap();
        let (up, down, slab_up, slab_down) = (ring(), ring(), slab(), slab());
        Self {
            producer: Producer::new(up.try_clone().unwrap()).unwrap(),
            consumer: Consumer::new(down.try_clone().unwrap()).unwrap(),
            writer: SlabWriter::new(slab_up.try_clone().unwrap()).unwrap(),
            reader: SlabReader::new(slab_down.try_clone().unwrap()).unwrap(),
            words: Vec::new(),
            frames: None,
            up,
            down,
            slab_up,
            slab_down,
        }
    }

    fn by_frames() -> Self {
        Self { frames: Some(FramedWires::default()), ..Self::new() }
    }

    /// The dispatcher's ends.
    fn link(&self) -> PeerLink {
        if let Some(frames) = &self.frames {
            return frames.link();
        }
        let consumer = Consumer::new(self.up.try_clone().unwrap()).unwrap();
        let waker = gt_transport::eventfd().unwrap();
        let slab = SlabReader::new(self.slab_up.try_clone().unwrap()).unwrap();
        PeerLink {
            source: WordSource::Ring { consumer, waker },
            target: WordTarget::Ring(Producer::new(self.down.try_clone().unwrap()).unwrap()),
            cancel: oneshot::channel().0,
            slab: Some(SlabPayloads::new(slab)),
            slab_down: Some(SlabWriter::new(self.slab_down.try_clone().unwrap()).unwrap()),
            process: None,
            inherited: None,
        }
    }

    fn send(&mut self, instruction: &Instruction<'_>) {
        let mut words = Vec::new();
        wire::encode(instruction, &mut words).unwrap();
        self.write(&words);
    }

    fn write(&mut self, words: &[u32]) {
        match &mut self.frames {
            Some(frames) => frames.send(words),
            None => assert!(self.producer.write(&[words]), "the script fits into the ring"),
        }
    }

    /// Puts bytes beside the words, if there is room.
    fn put(&mut self, offset: u32, bytes: &[u8]) -> bool {
        if self.frames.is_some() {
            return false;
        }
        let Some(slot) = self.writer.slot() else { return false };
        slot[..bytes.len()].copy_from_slice(bytes);
        let mut head = [0; HEAD_WORDS];
        head[0] = offset;
        self.writer.publish(&head, bytes.len())
    }

    /// The next frame that has arrived, and takes it.
    fn frame(&mut self) -> Option<Vec<u32>> {
        match &mut self.frames {
            Some(frames) => self.words.extend(frames.receive().unwrap_or_default()),
            None => {
                self.consumer.read(&mut self.words, usize::MAX);
            }
        }
        let frame = cut::first(&self.words).unwrap()?.to_vec();
        self.words.drain(..frame.len());
        Some(frame)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader.take(&mut bytes).map(|_| bytes)
    }
}

/// Number of bytes, and their sum: what a failure shows.
fn short(bytes: &[u8]) -> String {
    let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
    format!("{} bytes of sum {sum}", bytes.len())
}

/// A seeded sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A client, a worker, and all that they have got.
struct Scene {
    client: Wires,
    worker: Wires,
    step: u32,
    got: Vec<String>,
    answers: usize,
}

impl Scene {
    fn new() -> Self {
        Self { client: Wires::new(), worker: Wires::new(), step: 0, got: Vec::new(), answers: 0 }
    }

    /// A scene for a seed: one of the two, or both, is connected by TCP.
    fn by_frames(seed: u32) -> Self {
        let wires = |is_framed| if is_framed { Wires::by_frames() } else { Wires::new() };
        let (client, worker) = (wires(seed % 3 != 1), wires(seed % 3 != 2));
        Self { client, worker, ..Self::new() }
    }

    /// Connects the peers by frames with a standby that goes on.
    fn resume(&mut self, standby: &mut EventLoop) {
        let events = mpsc::unbounded_channel().0;
        for peer in standby.resumed_peers(&events).unwrap() {
            let wires = match peer.party {
                Party::Session(_) => &mut self.client,
                Party::Worker(_) => &mut self.worker,
            };
            let frames = wires.frames.as_mut().expect("a peer by rings has none");
            wires.words.extend(frames.resume(peer.frames.expect("it is connected by frames")));
        }
    }

    /// An event loop with both, as it is at a fork: nothing is published yet.
    fn event_loop(&self, journal: Option<&Arc<Journal>>) -> EventLoop {
        let mut outbox = Outbox::new(None);
        if let Some(journal) = journal {
            outbox.note_in(journal);
        }
        let waker = Arc::new(Waker::new().unwrap());
        let (_, events) = mpsc::unbounded_channel();
        let mut event_loop =
            EventLoop::new(Dispatcher::new(), outbox, None, events, waker).unwrap();
        event_loop.add_worker(0, self.worker.link(), Vec::new());
        let session = event_loop.dispatcher.open_session();
        event_loop.add_client(session, "test".to_owned(), self.client.link());
        if let Some(journal) = journal {
            let worker = event_loop.workers.get_mut(&0).unwrap();
            let inherited = |wires: &Wires| wires.frames.as_ref().map(|_| inherited());
            worker.note_in(journal, Party::Worker(0), inherited(&self.worker));
            let client = &mut event_loop.clients[0].inbound;
            client.note_in(journal, Party::Session(session), inherited(&self.client));
        }
        event_loop
    }

    /// The client's next step: an upload by two ways, additions, frees, a read.
    fn emit(&mut self) {
        if self.step >= STEPS {
            return;
        }
        let step = self.step;
        let fill = [u8::try_from(step).unwrap(); 8192];
        if step.is_multiple_of(10) {
            // The second half goes beside the words, while there is room.
            let is_beside = self.client.put(8192, &fill);
            let mut upload = Instruction::new(Op::Upload);
            upload.outputs.push(Id::slot(step));
            upload
                .attrs
                .extend([Attr::Ints(Dims::new(&[ELEMENTS]).unwrap()), Attr::Dtype(Dtype::F32)]);
            upload.payload = &fill;
            self.client.send(&upload);
            let mut chunk = Instruction::new(Op::Chunk);
            chunk.operands.push(Operand::Value(Id::slot(step)));
            chunk.attrs.push(Attr::Int(8192));
            chunk.payload = if is_beside { &[] } else { &fill };
            self.client.send(&chunk);
        } else {
            let mut add = Instruction::new(Op::Add);
            add.outputs.push(Id::slot(step));
            let operands = [step - 1, step - step % 10];
            add.operands.extend(operands.map(|slot| Operand::Value(Id::slot(slot))));
            add.attrs.extend(Op::Add.info().attrs.iter().map(|_| Attr::Absent));
            self.client.send(&add);
        }
        if step % 10 > 1 {
            let mut free = Instruction::new(Op::Free);
            free.operands.push(Operand::Value(Id::slot(step - 1)));
            self.client.send(&free);
        }
        if step.is_multiple_of(3) {
            let count = if step.is_multiple_of(2) { ELEMENTS } else { 3 };
            let mut read = Instruction::new(Op::Read);
            read.operands.push(Operand::Value(Id::slot(step)));
            read.attrs.extend([Attr::Int(i64::from(step)), Attr::Int(0), Attr::Int(count)]);
            self.client.send(&read);
        }
        self.step += 1;
    }

    /// The worker takes a frame and answers it.
    fn work(&mut self) {
        let Some(frame) = self.worker.frame() else { return };
        if cut::is_message(frame[0]) {
            match message::decode(&frame).unwrap().0 {
                // When these come depends on the clock.
                ToWorker::Mark { request } => self.answer(&FromWorker::Done { request }),
                other => self.got.push(format!("worker: {other:?}")),
            }
            return;
        }
        let (mut instruction, _) = wire::decode(&frame).unwrap();
        let bytes;
        if instruction.op == Op::Chunk && instruction.payload.is_empty() {
            bytes = self.worker.bytes().expect("its bytes are beside it");
            instruction.payload = &bytes;
        }
        let bytes = instruction.payload;
        let shown = Instruction { payload: &[], ..instruction.clone() };
        self.got.push(format!("worker: {shown:?}, {}", short(bytes)));
        if instruction.op == Op::Read {
            let number = |name| match instruction.attr(name) {
                Attr::Int(number) => u64::try_from(*number).unwrap(),
                other => panic!("{name} is {other:?}"),
            };
            let (request, count) = (number("request"), number("count"));
            let fill = u8::try_from(request % 251).unwrap();
            let bytes = vec![fill; usize::try_from(count * 4).unwrap()];
            let dims = Dims::new(&[ELEMENTS]).unwrap();
            let (start, total, dtype) = (0, count, Dtype::F32);
            let reply = Reply { request, start, count, total, dtype, dims, bytes: &bytes };
            if bytes.len() >= PAYLOAD_BYTES_MIN && self.worker.put(0, &bytes) {
                let mut words = Vec::new();
                message::encode_beside(&reply, &mut words).unwrap();
                self.worker.write(&words);
            } else {
                self.answer(&FromWorker::Reply(reply));
            }
        }
    }

    fn answer(&mut self, answer: &FromWorker<'_>) {
        let mut words = Vec::new();
        message::encode(answer, &mut words).unwrap();
        self.worker.write(&words);
    }

    /// The client takes a message.
    fn receive(&mut self) {
        let Some(frame) = self.client.frame() else { return };
        self.client.reader.refresh();
        let is_beside = Cell::new(false);
        let beside = || {
            is_beside.set(true);
            self.client.reader.front().map(|chunk| chunk.bytes)
        };
        let (message, _) = message::decode_with::<ToClient<'_>>(&frame, beside).unwrap();
        self.answers += usize::from(matches!(message, ToClient::Reply(_)));
        let text = match message {
            ToClient::Reply(reply) => {
                let bytes = short(reply.bytes);
                format!("client: {:?}, {bytes}", Reply { bytes: &[], ..reply })
            }
            other => format!("client: {other:?}"),
        };
        if is_beside.get() {
            self.client.reader.release();
        }
        self.got.push(text);
    }

    fn is_over(&self) -> bool {
        self.answers == usize::try_from(STEPS.div_ceil(3)).unwrap()
    }

    /// Messages to each side, in their order.
    fn outcome(mut self) -> Vec<String> {
        self.got.sort_by_key(|line| line.starts_with("client"));
        self.got
    }
}

/// Lets all work in an order that follows from the seed, until the client has all answers. Dies after
/// so many stores; returns if it did.
fn play(scene: &mut Scene, seed: u32, dies_after: u32) -> bool {
    let journal = Arc::new(Journal::new().unwrap());
    let has_journal = (dies_after > 0).then_some(&journal);
    let mut serving = scene.event_loop(has_journal);
    let mut standby = has_journal.map(|_| scene.event_loop(has_journal));
    if standby.is_some() {
        journal.turn_over();
        journal.begin();
        journal.stores_left.store(dies_after, Ordering::Relaxed);
    }
    let (mut numbers, mut has_died, mut rest) = (Numbers(seed.into()), false, 400);
    for _ in 0..1_000_000 {
        match numbers.below(4) {
            0 => scene.emit(),
            1 => scene.work(),
            2 => scene.receive(),
            _ => {
                let round = || serving.round(Instant::now());
                let died = catch_unwind(AssertUnwindSafe(round)).is_err();
                if died {
                    has_died = true;
                    serving = standby.take().expect("it dies once");
                    assert!(journal.begin_replay());
                    serving.outbox.hold();
                    let caught_up = serving.catch_up(&journal);
                    assert!(caught_up.is_ok(), "seed {seed}, {dies_after} stores: {caught_up:?}");
                    scene.resume(&mut serving);
                    serving.outbox.release();
                }
            }
        }
        // The worker gets frees behind the last read.
        rest -= u32::from(scene.is_over());
        if rest == 0 {
            return has_died;
        }
    }
    panic!("seed {seed}, {dies_after} stores: not over; {:?}", scene.got.last());
}

fn compare(got: &[String], expected: &[String], seed: u32, dies_after: u32) {
    for (place, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got, expected, "seed {seed}, {dies_after} stores, place {place}");
    }
    assert_eq!(got.len(), expected.len(), "seed {seed}, {dies_after} stores");
}

#[test]
fn a_death_between_any_two_stores_changes_nothing() {
    check_deaths(STRIDE, |_| Scene::new());
}

#[test]
fn a_death_between_any_two_stores_changes_nothing_for_peers_by_tcp() {
    check_deaths(STRIDE * 2, Scene::by_frames);
}

/// Lets scenes of a few seeds die at many moments, each followed by a standby.
fn check_deaths(stride: usize, new_scene: impl Fn(u32) -> Scene) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some("died") {
            hook(panic);
        }
    }));
    let mut deaths = 0;
    for seed in 1..=3_u32 {
        let mut scene = new_scene(seed);
        play(&mut scene, seed, 0);
        let expected = scene.outcome();
        // Others for each seed; all of them take a minute.
        for dies_after in (seed..).step_by(stride) {
            let mut scene = new_scene(seed);
            let has_died = play(&mut scene, seed, dies_after);
            compare(&scene.outcome(), &expected, seed, dies_after);
            if !has_died {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 40, "{deaths}");
}

#[test]
fn a_session_whose_ring_was_written_to_is_dropped_and_a_worker_ends_it() {
    for is_worker in [false, true] {
        let scene = Scene::new();
        let journal = Arc::new(Journal::new().unwrap());
        let serving = scene.event_loop(Some(&journal));
        let mut standby = scene.event_loop(Some(&journal));
        journal.turn_over();
        journal.begin();
        drop(serving);
        // Somebody who can write to the ring.
        let ring = if is_worker { &scene.worker } else { &scene.client };
        assert!(Producer::new(ring.down.try_clone().unwrap()).unwrap().write(&[&[1, 2, 3]]));
        assert!(journal.begin_replay());
        let caught_up = standby.catch_up(&journal);
        if is_worker {
            assert!(caught_up.unwrap_err().to_string().starts_with("worker 0: "));
        } else {
            caught_up.unwrap();
            standby.round(Instant::now()).unwrap();
            assert!(standby.clients.is_empty(), "its connection is dropped");
            assert!(standby.workers.contains_key(&0));
        }
    }
}
