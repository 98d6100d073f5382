//! The connection to a dispatcher on another host: numbered frames over TCP, resent after a dropped link.
//!
//! Two threads without Python: one writes what has gathered, one reads. A broken connection is resumed for ten seconds.

use super::answers::Answers;
use super::connection::{Connection, Inbox, SharedInbox};
use super::greeting::{DialError, connect_tcp, greet, hello};
use super::incoming::take_messages;
use gt_protocol::handshake::{Arrival, Capabilities, FrameHeader, Resume, Welcome};
use gt_protocol::message::{self, FromClient};
use gt_protocol::{Instruction, wire};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A dropped link is taken up again within this time, then the session is lost.
const RESUME_MAX: Duration = Duration::from_secs(10);
/// Words of a frame: well under the frame limit of 1 MiB.
const FRAME_WORDS: usize = 1 << 17;
/// Words that may wait to be written; beyond it the program waits.
const OUTGOING_WORDS_MAX: usize = 1 << 22;
/// Frames that may come before we acknowledge without a frame of our own.
const UNACKNOWLEDGED_FRAMES: u64 = 8;

#[derive(Default)]
struct State {
    outgoing: Vec<u32>,
    /// Frames that the dispatcher has not acknowledged, with their numbers.
    kept: VecDeque<(u64, Vec<u8>)>,
    sent: u64,
    received: u64,
    /// Last number that we acknowledged.
    told: u64,
    incoming: Vec<u32>,
    stream: Option<TcpStream>,
    /// How many streams there have been: a thread that finds the old one broken leaves the new one alone.
    streams: u64,
    closing: bool,
    closed: Option<String>,
}

struct Shared {
    state: Mutex<State>,
    /// Something to write, a new stream, or the end.
    writer: Condvar,
    /// Something arrived, or the end.
    reader: Condvar,
    welcome: Welcome,
    address: String,
    token: Option<String>,
}

pub(crate) struct TcpConnection {
    shared: Arc<Shared>,
    inbox: SharedInbox,
    threads: Vec<JoinHandle<()>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up the stream with that number, if it is still the current one; the writer dials again.
    fn drop_stream(&self, number: u64) {
        let mut state = self.lock();
        if state.streams == number
            && let Some(stream) = state.stream.take()
        {
            drop(stream.shutdown(Shutdown::Both));
        }
        drop(state);
        self.writer.notify_all();
    }
}

/// The empty frame that says: no local door for us, we stay on TCP.
pub(super) fn say_that_we_stay(stream: &mut TcpStream) -> std::io::Result<()> {
    let header = FrameHeader { length_bytes: 0, sequence: 0, acknowledged: 0 };
    stream.write_all(&header.encode().map_err(std::io::Error::other)?)
}

/// The limits of the handshake end with it: a dispatcher that is busy may let us wait.
fn without_limits(stream: &TcpStream) {
    // Fails only for a duration of zero.
    drop(stream.set_read_timeout(None));
    drop(stream.set_write_timeout(None));
}

impl TcpConnection {
    pub(super) fn new(
        stream: TcpStream,
        welcome: Welcome,
        address: &str,
        token: Option<&str>,
    ) -> Self {
        without_limits(&stream);
        let state = State { stream: Some(stream), streams: 1, ..State::default() };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            writer: Condvar::new(),
            reader: Condvar::new(),
            welcome,
            address: address.to_owned(),
            token: token.map(str::to_owned),
        });
        let inbox: SharedInbox = Arc::new(Mutex::new(TcpInbox { shared: Arc::clone(&shared) }));
        let threads = vec![
            thread::spawn({
                let shared = Arc::clone(&shared);
                move || write_loop(&shared)
            }),
            thread::spawn({
                let shared = Arc::clone(&shared);
                move || read_loop(&shared)
            }),
        ];
        Self { shared, inbox, threads }
    }

    fn queue(&mut self, words: &[u32]) {
        let mut state = self.shared.lock();
        state.outgoing.extend_from_slice(words);
        drop(state);
        self.shared.writer.notify_one();
    }
}

impl Connection for TcpConnection {
    fn has_room(&mut self) -> bool {
        let state = self.shared.lock();
        state.closed.is_none() && state.outgoing.len() < OUTGOING_WORDS_MAX
    }

    fn send(
        &mut self,
        instruction: &Instruction<'_>,
        _answers: &mut Answers,
    ) -> Result<(), String> {
        let mut words = Vec::new();
        wire::encode(instruction, &mut words).map_err(|error| error.to_string())?;
        self.queue(&words);
        Ok(())
    }

    fn say(&mut self, message: &FromClient<'_>, _answers: &mut Answers) {
        let mut words = Vec::new();
        if message::encode(message, &mut words).is_ok() {
            self.queue(&words);
        }
    }

    fn inboxes(&self) -> Vec<SharedInbox> {
        vec![Arc::clone(&self.inbox)]
    }

    fn receive(&mut self, _index: usize, words: &[u32], answers: &mut Answers) {
        take_messages(words, answers, None);
    }

    fn lost(&mut self, _index: usize, reason: &str, answers: &mut Answers) {
        answers
            .closed
            .get_or_insert_with(|| format!("the dispatcher at {}: {reason}", self.shared.address));
    }

    fn describe(&self) -> String {
        format!("dispatcher at {}, by TCP", self.shared.address)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn close(&mut self) {
        let goodbye = FromClient::Goodbye { reason: "the client ends its session" };
        let mut words = Vec::new();
        let encoded = message::encode(&goodbye, &mut words);
        debug_assert!(encoded.is_ok(), "a goodbye is short");
        let mut state = self.shared.lock();
        state.outgoing.append(&mut words);
        // Together with the goodbye: the dispatcher closes when it has that, and nobody may take it for a broken link.
        state.closing = true;
        drop(state);
        self.shared.writer.notify_all();
        for thread in self.threads.drain(..) {
            // A thread of ours that panicked has said so on stderr.
            drop(thread.join());
        }
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.close();
        }
    }
}

struct TcpInbox {
    shared: Arc<Shared>,
}

impl Inbox for TcpInbox {
    fn wait(&mut self, words: &mut Vec<u32>, _spin: Duration, timeout: Duration) -> bool {
        let state = self.shared.lock();
        let waited = self.shared.reader.wait_timeout_while(state, timeout, |state| {
            state.incoming.is_empty() && state.closed.is_none()
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        words.append(&mut state.incoming);
        !words.is_empty()
    }

    fn take(&mut self, words: &mut Vec<u32>) {
        words.append(&mut self.shared.lock().incoming);
    }

    fn closed(&mut self) -> Option<String> {
        self.shared.lock().closed.clone()
    }
}

/// Writes what has gathered, as whole instructions, until the end; resumes a broken connection.
fn write_loop(shared: &Shared) {
    loop {
        let Some(Next { mut stream, number, bytes, last }) = next_frames(shared) else { return };
        let written = stream.write_all(&bytes);
        if last {
            drop(stream.flush());
            drop(stream.shutdown(Shutdown::Both));
            shared.lock().closed.get_or_insert_with(|| "the session was ended".to_owned());
            shared.reader.notify_all();
            return;
        }
        if written.is_err() {
            shared.drop_stream(number);
        }
    }
}

/// What is to be written next, and where.
struct Next {
    stream: TcpStream,
    number: u64,
    bytes: Vec<u8>,
    /// Nothing follows.
    last: bool,
}

/// Waits for something to write. Resumes a broken connection first.
fn next_frames(shared: &Shared) -> Option<Next> {
    let mut state = shared.lock();
    loop {
        if state.closed.is_some() {
            return None;
        }
        if state.stream.is_none() {
            drop(state);
            if !resume(shared) {
                return None;
            }
            state = shared.lock();
            continue;
        }
        let due = state.received - state.told >= UNACKNOWLEDGED_FRAMES;
        if !state.outgoing.is_empty() || due || state.closing {
            break;
        }
        state = shared.writer.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let mut bytes = Vec::new();
    let words = std::mem::take(&mut state.outgoing);
    for frame in frames(&words) {
        state.sent += 1;
        append_frame(&mut bytes, frame, state.sent, state.received);
        let mut kept = Vec::new();
        append_frame(&mut kept, frame, state.sent, state.received);
        let number = state.sent;
        state.kept.push_back((number, kept));
    }
    if words.is_empty() {
        append_frame(&mut bytes, &[], state.sent, state.received);
    }
    state.told = state.received;
    let stream = state.stream.as_ref()?.try_clone().ok()?;
    Some(Next { stream, number: state.streams, bytes, last: state.closing })
}

/// Cuts a stream of whole instructions into frames of whole instructions.
fn frames(words: &[u32]) -> Vec<&[u32]> {
    let mut cut = Vec::new();
    let (mut start, mut end) = (0, 0);
    while let Some(&first) = words.get(end) {
        let length = usize::from(wire::halves(first).1).max(1);
        if end + length - start > FRAME_WORDS && end > start {
            cut.extend(words.get(start..end));
            start = end;
        }
        end += length;
    }
    cut.extend(words.get(start..).filter(|rest| !rest.is_empty()));
    cut
}

fn append_frame(bytes: &mut Vec<u8>, words: &[u32], sequence: u64, acknowledged: u64) {
    let length_bytes = u32::try_from(words.len() * 4).unwrap_or(u32::MAX);
    if let Ok(header) = (FrameHeader { length_bytes, sequence, acknowledged }).encode() {
        bytes.extend_from_slice(&header);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
}

/// Reads frames until the end.
fn read_loop(shared: &Shared) {
    loop {
        let (stream, number) = {
            let mut state = shared.lock();
            loop {
                if state.closed.is_some() {
                    return;
                }
                match state.stream.as_ref().and_then(|stream| stream.try_clone().ok()) {
                    Some(stream) => break (stream, state.streams),
                    None => {
                        state = shared.reader.wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        };
        read_frames(shared, stream);
        let mut state = shared.lock();
        if state.closing || state.closed.is_some() {
            state.closed.get_or_insert_with(|| "the session was ended".to_owned());
            drop(state);
            shared.reader.notify_all();
            shared.writer.notify_all();
            return;
        }
        drop(state);
        shared.drop_stream(number);
    }
}

/// Takes frames in until the connection breaks.
fn read_frames(shared: &Shared, mut stream: TcpStream) {
    let mut header = [0; FrameHeader::BYTES];
    let mut body = Vec::new();
    while stream.read_exact(&mut header).is_ok() {
        let Ok(header) = FrameHeader::decode(&header) else { return };
        body.resize(usize::try_from(header.length_bytes).unwrap_or(0), 0);
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let mut state = shared.lock();
        while state.kept.front().is_some_and(|(number, _)| *number <= header.acknowledged) {
            state.kept.pop_front();
        }
        match header.arrival(state.received) {
            // It came before the link broke.
            Arrival::Repeated => {}
            Arrival::Gap => return,
            Arrival::Next => {
                state.received += 1;
                let words = body.as_chunks::<4>().0;
                state.incoming.extend(words.iter().map(|bytes| u32::from_le_bytes(*bytes)));
            }
        }
        drop(state);
        shared.reader.notify_all();
        shared.writer.notify_all();
    }
}

/// Takes a broken connection up again; false when the session is lost.
fn resume(shared: &Shared) -> bool {
    let deadline = Instant::now() + RESUME_MAX;
    loop {
        {
            let state = shared.lock();
            if state.closing || state.closed.is_some() {
                drop(state);
                end(shared, "the connection broke");
                return false;
            }
        }
        match try_resume(shared) {
            Ok(()) => return true,
            Err(reason) if Instant::now() >= deadline => {
                end(shared, &reason);
                return false;
            }
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn try_resume(shared: &Shared) -> Result<(), String> {
    let mut stream = connect_tcp(&shared.address).map_err(|error| error.to_string())?;
    let acknowledged = shared.lock().received;
    let resume =
        Resume { session: shared.welcome.session, secret: shared.welcome.secret, acknowledged };
    let hello = hello(shared.token.as_deref(), Capabilities::default(), Some(resume));
    let welcome = match greet(&mut stream, &hello, &shared.address) {
        Ok(welcome) => welcome,
        Err(error @ DialError::Refused { .. }) => {
            end(shared, &error.to_string());
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    };
    let again: Vec<u8> = {
        let state = shared.lock();
        let missing = state.kept.iter().filter(|(number, _)| *number > welcome.acknowledged);
        missing.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    };
    stream.write_all(&again).map_err(|error| error.to_string())?;
    without_limits(&stream);
    let mut state = shared.lock();
    state.streams += 1;
    state.stream = Some(stream);
    drop(state);
    shared.reader.notify_all();
    Ok(())
}

fn end(shared: &Shared, reason: &str) {
    shared.lock().closed.get_or_insert_with(|| reason.to_owned());
    shared.reader.notify_all();
    shared.writer.notify_all();
}
