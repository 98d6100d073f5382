//! The loop of a worker on another host than its dispatcher: frames over TCP in place of rings.
//!
//! A dropped link is resumed with all values kept; the worker ends when the dispatcher has ended.

use super::greeting::tell;
use super::machine::Worker;
use super::peers::WorkerPeers;
use super::process::connection;
use super::redial::Redial;
use super::stream::WorkerStream;
use gt_protocol::handshake::FrameHeader;
use gt_protocol::link::{Keep, Link};
use gt_protocol::message::{self, FromWorker};
use gt_transport::tcp::AnswerWatch;
use gt_transport::{FutexWaker, HostStream};
use gt_worker::{Replies, Stop};
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

/// Number of words of answers that gather before they are sent; they are also sent when there is
/// nothing more to do.
const FLUSH_WORDS: usize = 64 * 1024;
/// Bytes of answers kept until the dispatcher acknowledges them; at the limit nothing more is sent
/// until it does.
const KEPT_BYTES_MAX: usize = 16 << 20;

pub fn serve_frames(
    py: Python<'_>,
    socket: HostStream,
    worker: Worker,
    index: u32,
    listener: TcpListener,
    redial: Redial,
) -> PyResult<()> {
    let Worker { mut machine, mut idle, packing, links } = worker;
    machine.set_index(index);
    let (_nobody, events) = mpsc::channel();
    let waker = FutexWaker::default();
    let peers = WorkerPeers::new(index, events, Some(listener), waker, packing, links.peers);
    let mut stream = WorkerStream::new(peers).map_err(connection)?;
    let mut answers = FramedLink::new(socket, redial).map_err(connection)?;
    machine.announce(true, &mut answers);
    answers.flush();
    // The loop ends with the dispatcher.
    loop {
        while answers.arrived.is_empty() && !answers.has_ended {
            let limit = idle.limit().min(answers.watch.interval().unwrap_or(Duration::MAX));
            machine.flush_record();
            if answers.stream.has_taken_in() {
                py.detach(|| answers.take_frame());
                continue;
            }
            let ready = py.detach(|| stream.wait_for(answers.stream.socket(), limit));
            if ready.map_err(connection)? {
                py.detach(|| answers.take_arrived());
                continue;
            }
            py.check_signals()?;
            idle.look(py)?;
            machine.catch_up(&mut answers, &mut stream);
            answers.flush();
            py.detach(|| answers.look());
        }
        if let Some(error) = answers.error.take() {
            return Err(connection(error));
        }
        let Some(words) = answers.arrived.pop_front() else { return Ok(()) };
        // A frame has whole instructions only, so no words are left over.
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
    }
}

/// The worker's end of the link, which outlives its connections: answers are sent as frames, and
/// frames with instructions arrive.
struct FramedLink {
    stream: HostStream,
    watch: AnswerWatch,
    redial: Redial,
    link: Link,
    /// Answers that are not in a frame yet.
    words: Vec<u32>,
    bytes: Vec<u8>,
    /// Frames that have not been executed yet.
    arrived: VecDeque<Vec<u32>>,
    /// True once the link is over: the dispatcher has ended, or there is an error.
    has_ended: bool,
    error: Option<io::Error>,
}

impl FramedLink {
    fn new(stream: HostStream, redial: Redial) -> io::Result<Self> {
        let watch = AnswerWatch::new(redial.limits().probes);
        stream.socket().set_write_timeout(watch.interval())?;
        Ok(Self {
            stream,
            watch,
            redial,
            link: Link::new(Keep::Unacknowledged { bytes_max: KEPT_BYTES_MAX }),
            words: Vec::new(),
            bytes: Vec::new(),
            arrived: VecDeque::new(),
            has_ended: false,
            error: None,
        })
    }

    /// Sends the answers that have gathered; waits first for the dispatcher's acknowledgement where
    /// much is unacknowledged.
    fn flush(&mut self) {
        while !self.link.may_send() && !self.has_ended {
            self.take_frame();
        }
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
        let bytes = std::mem::take(&mut self.bytes);
        if !self.has_ended
            && let Err(error) = self.stream.write_watched(&mut self.watch, &bytes)
        {
            // Resuming sends the kept frames again.
            self.resume(&error);
        }
        self.bytes = bytes;
        self.bytes.clear();
    }

    /// Resumes a broken link while the other host is silent.
    fn look(&mut self) {
        if !self.has_ended
            && let Err(error) = self.watch.look(self.stream.socket())
        {
            self.resume(&error);
        }
    }

    /// Takes a frame if the readable socket has more than TLS's own messages.
    fn take_arrived(&mut self) {
        match self.stream.take_in() {
            Ok(true) => self.take_frame(),
            Ok(false) => {}
            Err(error) => self.resume(&error),
        }
    }

    /// Waits for a frame.
    fn take_frame(&mut self) {
        match self.read_frame() {
            Ok(Some(words)) => self.arrived.push_back(words),
            Ok(None) => {}
            Err(error) => self.resume(&error),
        }
    }

    /// The next frame's words; `None` for a frame without words, or one that was received before.
    fn read_frame(&mut self) -> io::Result<Option<Vec<u32>>> {
        let mut header = [0; FrameHeader::BYTES];
        self.stream.read_exact(&mut header)?;
        let header = self.link.header(&header).map_err(io::Error::other)?;
        let length = usize::try_from(header.length_bytes).expect("usize has 64 bits");
        let mut words = vec![0; length / size_of::<u32>()];
        self.stream.read_exact(bytemuck::cast_slice_mut(&mut words))?;
        if !self.link.is_new(header).map_err(io::Error::other)? {
            return Ok(None);
        }
        self.link.accept(header);
        Ok(Some(words))
    }

    /// Continues over a new connection, or ends the link.
    fn resume(&mut self, broken: &io::Error) {
        // The loop ends at the link's time limit.
        while !self.has_ended {
            match self.redial.resume(self.link.received()) {
                Ok(Some((stream, acknowledged))) => match self.go_on(stream, acknowledged) {
                    Ok(true) => {
                        tell(&format!(
                            "the link to the dispatcher broke ({broken}) and is resumed"
                        ));
                        return;
                    }
                    Ok(false) => {}
                    Err(error) => (self.error, self.has_ended) = (Some(error), true),
                },
                Ok(None) => self.has_ended = true,
                Err(error) => (self.error, self.has_ended) = (Some(error), true),
            }
        }
    }

    /// Sends the frames again that have not arrived; false if the new connection is broken, too.
    fn go_on(&mut self, stream: HostStream, acknowledged: u64) -> io::Result<bool> {
        self.link.resume(acknowledged).map_err(io::Error::other)?;
        self.watch = AnswerWatch::new(self.redial.limits().probes);
        stream.socket().set_write_timeout(self.watch.interval())?;
        self.stream = stream;
        let mut again = Vec::new();
        self.link.resend(&mut again);
        Ok(self.stream.write_watched(&mut self.watch, &again).is_ok())
    }
}

impl Replies for FramedLink {
    fn send(&mut self, message: &FromWorker<'_>) {
        let encoded = message::encode(message, &mut self.words);
        encoded.expect("texts are clipped and answers are split to fit a frame");
        if self.words.len() >= FLUSH_WORDS {
            self.flush();
        }
    }
}
