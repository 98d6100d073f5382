//! A client or worker that implements the handshake, over rings or frames, without tokio.

use super::Server;
use gt_protocol::handshake::{
    Capabilities, FrameHeader, Handshake, Hello, Refusal, Resume, Role, Welcome,
};
use gt_protocol::message::{self, FromClient, Message, ToClient};
use gt_protocol::{Attr, Dims, Dtype, Id, Instruction, Op, Operand, wire};
use gt_transport::{
    Consumer, ControlKind, ControlRecord, Producer, SlabReader, SlabWriter, receive_record,
};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

/// Time limit far above anything on a loaded machine.
const HANG: Duration = Duration::from_secs(20);
const SPIN: Duration = Duration::from_micros(200);

/// Transport of the words.
pub enum Way {
    Ring {
        producer: Producer,
        consumer: Consumer,
        socket: UnixStream,
        life_line: Option<TcpStream>,
    },
    Frames {
        stream: TcpStream,
        sent: u64,
        received: u64,
        /// Address at which it connects again when the connection breaks, if it does, and the frames
        /// that it sends again then.
        redials: Option<String>,
        kept: VecDeque<(u64, Vec<u8>)>,
    },
}

pub struct Peer {
    pub way: Way,
    pub welcome: Welcome,
    pub slabs: Option<Slabs>,
    words: Vec<u32>,
    start: usize,
}

pub fn hello(role: Role) -> Hello {
    Hello { capabilities: Capabilities::RING, name: "test".to_owned(), ..Hello::new(role) }
}

/// Sends the hello and returns the answer.
pub fn greet(stream: &mut (impl Read + Write), hello: Hello) -> Result<Welcome, Refusal> {
    try_greet(stream, hello).unwrap()
}

/// [`greet`], unless the connection breaks.
fn try_greet(
    stream: &mut (impl Read + Write),
    hello: Hello,
) -> io::Result<Result<Welcome, Refusal>> {
    stream.write_all(&Handshake::Hello(hello).encode().unwrap())?;
    let mut bytes = vec![0; 6];
    stream.read_exact(&mut bytes)?;
    bytes.resize(usize::from(u16::from_le_bytes([bytes[4], bytes[5]])), 0);
    stream.read_exact(&mut bytes[6..])?;
    Ok(match Handshake::decode(&bytes).unwrap().unwrap().0 {
        Handshake::Welcome(welcome) => Ok(welcome),
        Handshake::Refusal(refusal) => Err(refusal),
        Handshake::Hello(_) => panic!("a hello for an answer"),
    })
}

/// The rings that follow a welcome on a Unix socket.
fn rings(socket: &UnixStream) -> (Producer, Consumer, Option<Slabs>) {
    let (record, descriptors) = receive_record(socket.as_fd()).unwrap().unwrap();
    let (mut descriptors, slabs) = record.split(descriptors);
    let slabs = slabs.map(|[reads, writes]| Slabs {
        reads: SlabReader::new(reads).unwrap(),
        writes: SlabWriter::new(writes).unwrap(),
    });
    assert_eq!((record.kind, descriptors.len()), (ControlKind::Setup, 3));
    let waker = descriptors.pop().unwrap();
    let mut producer = Producer::new(descriptors.pop().unwrap()).unwrap();
    producer.set_waker(waker);
    (producer, Consumer::new(descriptors.pop().unwrap()).unwrap(), slabs)
}

/// Slabs of a peer that has `Capabilities::SLAB`.
pub struct Slabs {
    pub reads: SlabReader,
    pub writes: SlabWriter,
}

impl Peer {
    fn new(way: Way, welcome: Welcome) -> Self {
        Self { way, welcome, slabs: None, words: Vec::new(), start: 0 }
    }

    pub fn unix(server: &Server, hello: Hello) -> Self {
        Self::try_unix(server, hello).unwrap()
    }

    /// Connects by the Unix socket, unless it is refused.
    pub fn try_unix(server: &Server, hello: Hello) -> Result<Self, Refusal> {
        let mut socket = UnixStream::connect(&server.unix).unwrap();
        let welcome = greet(&mut socket, hello)?;
        let (producer, consumer, slabs) = rings(&socket);
        let way = Way::Ring { producer, consumer, socket, life_line: None };
        Ok(Self { slabs, ..Self::new(way, welcome) })
    }

    /// Connects by loopback TCP and moves to rings.
    pub fn moved(server: &Server, hello: Hello) -> Self {
        let role = hello.role;
        let mut life_line = TcpStream::connect(&server.address).unwrap();
        let welcome = greet(&mut life_line, hello).unwrap();
        let local_socket = welcome.local_socket.clone().unwrap();
        assert_eq!(local_socket.address[0], 0);
        let address = SocketAddr::from_abstract_name(&local_socket.address[1..]).unwrap();
        let mut socket = UnixStream::connect_addr(&address).unwrap();
        let resume =
            Resume { session: welcome.session, secret: local_socket.secret, acknowledged: 0 };
        greet(&mut socket, Hello { resume: Some(resume), ..Hello::new(role) }).unwrap();
        let (producer, consumer, slabs) = rings(&socket);
        let life_line = Some(life_line);
        Self { slabs, ..Self::new(Way::Ring { producer, consumer, socket, life_line }, welcome) }
    }

    /// Connects by TCP and stays there.
    pub fn tcp(server: &Server, hello: Hello) -> Self {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let welcome =
            greet(&mut stream, Hello { capabilities: Capabilities::default(), ..hello }).unwrap();
        assert_eq!(welcome.local_socket, None);
        let (redials, kept) = (None, VecDeque::new());
        Self::new(Way::Frames { stream, sent: 0, received: 0, redials, kept }, welcome)
    }

    /// Connects by TCP, stays there, and resumes its link whenever the connection breaks.
    pub fn resuming(server: &Server, hello: Hello) -> Self {
        let mut peer = Self::tcp(server, hello);
        if let Way::Frames { redials, .. } = &mut peer.way {
            *redials = Some(server.address.clone());
        }
        peer
    }

    /// Resumes a broken link, if it is one that is resumed; returns false if it is over.
    fn redial(&mut self) -> bool {
        let (session, secret) = (self.welcome.session, self.welcome.secret);
        let Way::Frames { stream, received, redials: Some(address), kept, .. } = &mut self.way
        else {
            return false;
        };
        let deadline = Instant::now() + HANG;
        while Instant::now() < deadline {
            let resume = Some(Resume { session, secret, acknowledged: *received });
            let Ok(mut new) = TcpStream::connect(&*address) else { return false };
            new.set_nodelay(true).unwrap();
            new.set_read_timeout(Some(HANG)).unwrap();
            match try_greet(&mut new, Hello { resume, ..Hello::new(Role::Client) }) {
                Ok(Ok(welcome)) => {
                    kept.retain(|(number, _)| *number > welcome.acknowledged);
                    let again: Vec<u8> = kept.iter().flat_map(|(_, frame)| frame.clone()).collect();
                    *stream = new;
                    if stream.write_all(&again).is_ok() {
                        return true;
                    }
                }
                Ok(Err(_)) => return false,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        panic!("nobody takes the link up again");
    }

    /// Drops the TCP connection and connects again.
    pub fn reconnect(&mut self, server: &Server) -> Welcome {
        let Way::Frames { stream, received, .. } = &mut self.way else { panic!("a ring") };
        let (session, secret) = (self.welcome.session, self.welcome.secret);
        let resume = Some(Resume { session, secret, acknowledged: *received });
        *stream = TcpStream::connect(&server.address).unwrap();
        greet(stream, Hello { resume, ..Hello::new(Role::Client) }).unwrap()
    }

    /// Simulates that the last frame in each direction was lost.
    pub fn forget_last_frames(&mut self) {
        let Way::Frames { sent, received, .. } = &mut self.way else { panic!("a ring") };
        *sent -= 1;
        *received -= 1;
    }

    /// Sends words, as one group or frame.
    pub fn send(&mut self, words: &[u32]) {
        match &mut self.way {
            Way::Ring { producer, .. } => {
                let deadline = Instant::now() + HANG;
                while !producer.write(&[words]) {
                    assert!(Instant::now() < deadline, "the ring stays full");
                    producer.wait_space(words.len(), Duration::from_millis(10));
                }
            }
            Way::Frames { stream, sent, received, redials, kept } => {
                *sent += u64::from(!words.is_empty());
                let length_bytes = u32::try_from(words.len() * 4).unwrap();
                let header = FrameHeader { length_bytes, sequence: *sent, acknowledged: *received };
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let frame = [&header.encode().unwrap()[..], &bytes].concat();
                if redials.is_none() {
                    return stream.write_all(&frame).unwrap();
                }
                kept.push_back((*sent, frame.clone()));
                if stream.write_all(&frame).is_err() {
                    // If it is over, the next read shows it.
                    self.redial();
                }
            }
        }
    }

    pub fn emit(&mut self, instruction: &Instruction<'_>) {
        let mut words = Vec::new();
        wire::encode(instruction, &mut words).unwrap();
        self.send(&words);
    }

    pub fn say<'m>(&mut self, message: &impl Message<'m>) {
        let mut words = Vec::new();
        message::encode(message, &mut words).unwrap();
        self.send(&words);
    }

    /// The next instruction or message that arrives; `None` when the other side has closed.
    pub fn frame(&mut self) -> Option<Vec<u32>> {
        self.next().map(<[u32]>::to_vec)
    }

    /// [`Self::frame`] in place.
    pub fn next(&mut self) -> Option<&[u32]> {
        let mut deadline = None;
        loop {
            let unread = self.words.len() - self.start;
            if let Some(&first) = self.words.get(self.start) {
                let length = usize::from(wire::halves(first).1);
                if unread >= length {
                    self.start += length;
                    return Some(&self.words[self.start - length..self.start]);
                }
            }
            self.words.drain(..self.start);
            self.start = 0;
            let now = Instant::now();
            assert!(now < *deadline.get_or_insert(now + HANG), "nothing arrives");
            if !self.fill() {
                return None;
            }
        }
    }

    /// Number of words read from the ring and not yet looked at.
    pub fn unread(&self) -> usize {
        self.words.len() - self.start
    }

    fn fill(&mut self) -> bool {
        match &mut self.way {
            Way::Ring { consumer, socket, .. } => {
                let more = consumer.wait(SPIN, Duration::from_millis(20));
                let closed = !more && gt_transport::peer_closed(socket.as_fd());
                consumer.read(&mut self.words, usize::MAX) > 0 || !closed
            }
            Way::Frames { stream, received, redials, kept, .. } => {
                let mut header = [0; FrameHeader::BYTES];
                if stream.read_exact(&mut header).is_err() {
                    return self.redial();
                }
                let header = FrameHeader::decode(&header).unwrap();
                let mut bytes = vec![0; usize::try_from(header.length_bytes).unwrap()];
                match stream.read_exact(&mut bytes) {
                    Ok(()) => {}
                    Err(_) if redials.is_some() => return self.redial(),
                    Err(error) => panic!("{error}"),
                }
                kept.retain(|(number, _)| *number > header.acknowledged);
                if header.length_bytes > 0 && header.sequence == *received + 1 {
                    *received += 1;
                    let words = bytes.as_chunks::<4>().0.iter().copied();
                    self.words.extend(words.map(u32::from_le_bytes));
                }
                true
            }
        }
    }

    /// The next control record; `None` at the end.
    pub fn record(&self) -> Option<(ControlRecord, usize)> {
        let Way::Ring { socket, .. } = &self.way else { panic!("no socket for records") };
        let (record, descriptors) = receive_record(socket.as_fd()).unwrap()?;
        Some((record, descriptors.len()))
    }

    pub fn upload(&mut self, slot: u32, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let size = Dims::new(&[i64::try_from(values.len()).unwrap()]).unwrap();
        let mut instruction = Instruction::new(Op::Upload);
        instruction.outputs.push(Id::slot(slot));
        instruction.attrs.extend([Attr::Ints(size), Attr::Dtype(Dtype::F32)]);
        instruction.payload = &bytes;
        self.emit(&instruction);
    }

    pub fn add(&mut self, slot: u32, left: u32, right: u32) {
        self.emit(&add(slot, left, right));
    }

    pub fn free(&mut self, slot: u32) {
        let mut instruction = Instruction::new(Op::Free);
        instruction.operands.push(Operand::Value(Id::slot(slot)));
        self.emit(&instruction);
    }

    pub fn ask(&mut self, request: i64, slot: u32, count: i64) {
        let mut instruction = Instruction::new(Op::Read);
        instruction.operands.push(Operand::Value(Id::slot(slot)));
        instruction.attrs.extend([Attr::Int(request), Attr::Int(0), Attr::Int(count)]);
        self.emit(&instruction);
    }

    /// Reads a value; messages that come before the answer are skipped.
    pub fn read(&mut self, request: i64, slot: u32, count: i64) -> Result<Vec<f32>, String> {
        self.ask(request, slot, count);
        self.answer(request)
    }

    pub fn answer(&mut self, wanted: i64) -> Result<Vec<f32>, String> {
        let wanted = u64::try_from(wanted).unwrap();
        loop {
            let frame = self.frame().ok_or("closed")?;
            match message::decode(&frame).unwrap().0 {
                ToClient::Reply(reply) if reply.request == wanted => {
                    let values = reply.bytes.as_chunks::<4>().0.iter().copied();
                    return Ok(values.map(f32::from_le_bytes).collect());
                }
                ToClient::FailedReply { request, failure } if request == wanted => {
                    return Err(format!("{:?}: {}", failure.class, failure.text));
                }
                ToClient::Goodbye { reason } => return Err(format!("goodbye: {reason}")),
                _ => {}
            }
        }
    }

    /// Number of live values on all workers.
    pub fn values_on_workers(&mut self) -> u64 {
        self.say(&FromClient::StatsRequest { request: 77 });
        let mut values = 0;
        loop {
            let frame = self.frame().unwrap();
            match message::decode(&frame).unwrap().0 {
                ToClient::WorkerStats { stats, .. } => values += stats.values,
                ToClient::Done { request: 77 } => return values,
                _ => {}
            }
        }
    }
}

pub fn add(slot: u32, left: u32, right: u32) -> Instruction<'static> {
    let mut instruction = Instruction::new(Op::Add);
    instruction.outputs.push(Id::slot(slot));
    let operands = [left, right].map(|slot| Operand::Value(Id::slot(slot)));
    instruction.operands.extend(operands);
    instruction.attrs.extend(Op::Add.info().attrs.iter().map(|row| {
        assert!(row.optional, "add has a required attribute {}", row.name);
        Attr::Absent
    }));
    instruction
}
