//! A worker that can upload, add, read and free vectors of f32.

use super::Server;
use super::peer::{Peer, Way, hello};
use gt_protocol::handshake::Role;
use gt_protocol::message::{self, FromWorker, Reply, Stats, ToWorker};
use gt_protocol::{Attr, Dims, Dtype, Id, Instruction, Op, wire};
use std::collections::BTreeMap;
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
                    // It has nothing to do with other workers.
                    // Only an embedded dispatcher passes cancels on and asks for losses.
                    ToWorker::Peer(_) | ToWorker::Cancel | ToWorker::LossesRequest { .. } => {}
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
                self.define(instruction, values.map(f32::from_le_bytes).collect());
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
