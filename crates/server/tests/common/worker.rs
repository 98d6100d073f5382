//! A worker that can upload, add, read and free vectors of f32.

use super::Server;
use super::peer::{Peer, Way, hello};
use gt_protocol::handshake::{Capabilities, Hello, Role};
use gt_protocol::message::{self, FromWorker, Losses, Reply, Stats, ToWorker};
use gt_protocol::{Attr, Dims, Dtype, Id, Instruction, Op, wire};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A toy worker on a thread of its own. It ends when the dispatcher says goodbye or closes.
pub fn spawn(server: &Server) -> JoinHandle<Peer> {
    // Connected here, so that workers have the order in which they are spawned.
    let peer = Peer::unix(server, hello(Role::Worker));
    std::thread::spawn(move || serve(peer))
}

/// A toy worker by TCP, whose link is resumed whenever the connection breaks.
pub fn spawn_remote(server: &Server) -> JoinHandle<Peer> {
    let peer = Peer::resuming(server, hello(Role::Worker));
    std::thread::spawn(move || serve(peer))
}

/// A supervised toy worker, which is killed by [`Supervised::kill`].
pub struct Supervised {
    socket: UnixStream,
    run: JoinHandle<Peer>,
}

/// Connects at this index, by which another one takes its place later.
pub fn spawn_supervised(server: &Server, index: u32) -> Supervised {
    let deadline = Instant::now() + Duration::from_secs(20);
    let hello = Hello {
        capabilities: Capabilities::RING.with(Capabilities::SUPERVISED),
        worker: Some(index),
        ..hello(Role::Worker)
    };
    // The place may be that of one whose end is not noticed yet.
    let peer = loop {
        match Peer::try_unix(server, hello.clone()) {
            Ok(peer) => break peer,
            Err(refusal) => assert!(Instant::now() < deadline, "{refusal:?}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let Way::Ring { socket, .. } = &peer.way else { panic!("no ring") };
    Supervised { socket: socket.try_clone().unwrap(), run: std::thread::spawn(move || serve(peer)) }
}

impl Supervised {
    /// Ends it without a word, with all that it has.
    pub fn kill(self) {
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
        drop(self.run.join());
    }

    /// Waits for its end with the dispatcher's.
    pub fn join(self) {
        self.run.join().unwrap();
    }
}

/// Connects, and dies at the first instruction of this kind.
pub fn spawn_mortal(server: &Server, deadly: Op) -> JoinHandle<Peer> {
    let peer = Peer::unix(server, hello(Role::Worker));
    std::thread::spawn(move || Toy { deadly: Some(deadly), ..Toy::new(peer) }.run())
}

pub fn serve(peer: Peer) -> Peer {
    Toy::new(peer).run()
}

struct Toy {
    peer: Peer,
    values: BTreeMap<u32, Vec<f32>>,
    deadly: Option<Op>,
}

impl Toy {
    fn new(peer: Peer) -> Self {
        Self { peer, values: BTreeMap::new(), deadly: None }
    }

    fn run(mut self) -> Peer {
        while let Some(frame) = self.peer.frame() {
            if wire::halves(frame[0]).0 >= wire::MESSAGE_CODE_FIRST {
                match message::decode(&frame).unwrap().0 {
                    ToWorker::Goodbye { .. } => break,
                    ToWorker::StatsRequest { request } => {
                        let values = u64::try_from(self.values.len()).unwrap();
                        self.peer.say(&FromWorker::Stats(Stats {
                            request,
                            values,
                            ..Stats::default()
                        }));
                    }
                    ToWorker::Mark { request } => self.peer.say(&FromWorker::Done { request }),
                    // It has nothing to do with other workers, and so nothing of theirs to lose.
                    ToWorker::LossesRequest { request } => {
                        let losses = Losses { request, is_last: true, slots: &[] };
                        self.peer.say(&FromWorker::Losses(losses));
                    }
                    // Only an embedded dispatcher passes cancels on.
                    ToWorker::Peer(_) | ToWorker::Cancel => {}
                }
                continue;
            }
            let (instruction, _) = wire::decode(&frame).unwrap();
            if self.deadly == Some(instruction.op) {
                break;
            }
            self.execute(&instruction);
        }
        if let (Way::Ring { socket, .. }, Some(_)) = (&self.peer.way, self.deadly) {
            socket.shutdown(std::net::Shutdown::Both).unwrap();
        }
        self.peer
    }

    fn execute(&mut self, instruction: &Instruction<'_>) {
        let slots: Vec<u32> = instruction.values().filter_map(Id::as_slot).collect();
        match instruction.op {
            Op::Session => {}
            Op::Upload => {
                let values = instruction.payload.as_chunks::<4>().0.iter().copied();
                let mut values: Vec<f32> = values.map(f32::from_le_bytes).collect();
                let Attr::Ints(dims) = &instruction.attrs[0] else { panic!("no size") };
                let count: i64 = dims.iter().product();
                // The rest comes in chunks.
                values.resize(usize::try_from(count).unwrap(), 0.0);
                self.define(instruction, values);
            }
            Op::Chunk => {
                let offset = usize::try_from(number(instruction, "offset")).unwrap();
                let places = self.values.get_mut(&slots[0]).unwrap().iter_mut().skip(offset / 4);
                for (place, bytes) in places.zip(instruction.payload.as_chunks::<4>().0) {
                    *place = f32::from_le_bytes(*bytes);
                }
            }
            Op::Add => {
                let [left, right] = [slots[0], slots[1]].map(|slot| &self.values[&slot]);
                let sum = left.iter().zip(right).map(|(left, right)| left + right).collect();
                self.define(instruction, sum);
            }
            Op::Free => slots.iter().for_each(|slot| assert!(self.values.remove(slot).is_some())),
            Op::Synchronize => {
                let request = number(instruction, "request");
                self.peer.say(&FromWorker::Done { request });
            }
            Op::Read => {
                let values = &self.values[&slots[0]];
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let count = u64::try_from(values.len()).unwrap();
                let dims = Dims::new(&[i64::try_from(count).unwrap()]).unwrap();
                let request = number(instruction, "request");
                let (start, total, dtype) = (0, count, Dtype::F32);
                let bytes = &bytes[..];
                let reply = Reply { request, start, count, total, dtype, dims, bytes };
                self.peer.say(&FromWorker::Reply(reply));
            }
            op => panic!("a toy worker cannot {op:?}"),
        }
    }

    fn define(&mut self, instruction: &Instruction<'_>, values: Vec<f32>) {
        let slot = instruction.outputs[0].as_slot().unwrap();
        assert!(self.values.insert(slot, values).is_none(), "slot {slot} is taken");
    }
}

fn number(instruction: &Instruction<'_>, name: &str) -> u64 {
    match instruction.attr(name) {
        Attr::Int(value) => u64::try_from(*value).unwrap(),
        other => panic!("{name} is {other:?}"),
    }
}

/// A worker that computes nothing, is busy for `cost` at each add, and answers each read with one
/// zero.
pub fn spawn_idle(server: &Server, cost: Duration) -> JoinHandle<()> {
    let mut peer = Peer::unix(server, hello(Role::Worker));
    let codes = [Op::Read, Op::Synchronize].map(|op| op.info().code);
    std::thread::spawn(move || {
        let _ = gt_transport::set_short_slice();
        while let Some(frame) = peer.next() {
            let code = wire::halves(frame[0]).0;
            if !codes.contains(&code) {
                let start = Instant::now();
                while code == Op::Add.info().code && start.elapsed() < cost {}
                continue;
            }
            let (instruction, _) = wire::decode(frame).unwrap();
            let request = number(&instruction, "request");
            let (dims, bytes, dtype) = (Dims::new(&[1]).unwrap(), &[0; 4][..], Dtype::F32);
            peer.say(&FromWorker::Reply(Reply {
                request,
                start: 0,
                count: 1,
                total: 1,
                dtype,
                dims,
                bytes,
            }));
        }
    })
}
