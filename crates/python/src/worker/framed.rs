//! The loop of a worker on another host than its dispatcher: frames over TCP in the place of rings.
//!
//! A dropped link ends the worker: its values could be kept, but nobody has asked for a resume yet.

use super::machine::Worker;
use super::peers::WorkerPeers;
use super::process::connection;
use super::stream::WorkerStream;
use gt_protocol::handshake::FrameHeader;
use gt_protocol::link::{Keep, Link};
use gt_protocol::message::{self, FromWorker};
use gt_transport::FutexWaker;
use gt_worker::{Replies, Stop};
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

/// Answers are sent when so many words have gathered, and when there is nothing more to do.
const FLUSH_WORDS: usize = 64 * 1024;

pub fn serve_frames(
    py: Python<'_>,
    mut socket: TcpStream,
    worker: Worker,
    index: u32,
    listener: TcpListener,
) -> PyResult<()> {
    let Worker { mut machine, mut idle, packing } = worker;
    machine.set_index(index);
    let (_nobody, events) = mpsc::channel();
    let peers = WorkerPeers::new(index, events, Some(listener), FutexWaker::default(), packing);
    let mut stream = WorkerStream::new(peers).map_err(connection)?;
    let mut answers = Framed::new(socket.try_clone().map_err(connection)?);
    let mut words: Vec<u32> = Vec::new();
    machine.announce(true, &mut answers);
    answers.flush();
    loop {
        loop {
            let limit = idle.limit();
            machine.flush_record();
            if py.detach(|| stream.wait_for(&socket, limit)).map_err(connection)? {
                break;
            }
            py.check_signals()?;
            idle.look(py)?;
            machine.catch_up(&mut answers, &mut stream);
            answers.flush();
        }
        let link = &mut answers.link;
        let Some(header) =
            py.detach(|| receive(&mut socket, link, &mut words)).map_err(connection)?
        else {
            return Ok(());
        };
        if !link.is_new(header).map_err(connection)? {
            continue;
        }
        link.accept(header);
        // Whole instructions only, so nothing is left over.
        idle.end();
        match machine.run(&words, &mut answers, &mut stream) {
            Ok(done) if done == words.len() => {}
            Ok(_) => {
                return Err(PyConnectionError::new_err("an instruction crosses a frame's end"));
            }
            Err(Stop::Goodbye) => return Ok(()),
            Err(Stop::Broken(error)) => return Err(connection(error)),
        }
        answers.flush();
        answers.acknowledge();
        if let Some(error) = answers.error.take() {
            return Err(connection(error));
        }
    }
}

/// The next frame; `None` at the end of the connection.
fn receive(
    stream: &mut TcpStream,
    link: &mut Link,
    words: &mut Vec<u32>,
) -> io::Result<Option<FrameHeader>> {
    let mut header = [0; FrameHeader::BYTES];
    match stream.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let header = link.header(&header).map_err(io::Error::other)?;
    let length = usize::try_from(header.length_bytes).expect("usize has 64 bits");
    words.clear();
    words.resize(length / size_of::<u32>(), 0);
    stream.read_exact(bytemuck::cast_slice_mut(words))?;
    Ok(Some(header))
}

/// Answers as frames on a socket.
struct Framed {
    stream: TcpStream,
    /// Keeps nothing: the session ends with its connection.
    link: Link,
    words: Vec<u32>,
    bytes: Vec<u8>,
    error: Option<io::Error>,
}

impl Framed {
    const fn new(stream: TcpStream) -> Self {
        let link = Link::new(Keep::Nothing);
        Self { stream, link, words: Vec::new(), bytes: Vec::new(), error: None }
    }

    fn flush(&mut self) {
        self.link.send(std::mem::take(&mut self.words), &mut self.bytes);
        self.write();
    }

    fn acknowledge(&mut self) {
        if self.link.owes_acknowledgement() {
            self.link.acknowledge(&mut self.bytes);
            self.write();
        }
    }

    fn write(&mut self) {
        let written = self.stream.write_all(&self.bytes);
        self.error = self.error.take().or(written.err());
        self.bytes.clear();
    }
}

impl Replies for Framed {
    fn send(&mut self, message: &FromWorker<'_>) {
        let encoded = message::encode(message, &mut self.words);
        encoded.expect("a machine's texts are clipped and its answers cut to size");
        if self.words.len() >= FLUSH_WORDS {
            self.flush();
        }
    }
}
