//! The connection to a dispatcher on another host: numbered frames over TCP, resent after a dropped link.
//!
//! Two threads without Python: one writes the words that have gathered, one reads. A broken
//! connection is resumed within ten seconds.

use super::answers::Answers;
use super::greeting::{Credentials, DialError, connect_tcp, greet, hello};
use super::incoming::take_messages;
use super::{Connection, Inbox, SharedInbox};
use gt_protocol::handshake::{Capabilities, FrameHeader, Resume, Welcome};
use gt_protocol::integer::to_usize;
use gt_protocol::link::{Keep, Link};
use gt_protocol::message::{self, FromClient};
use gt_protocol::{Instruction, Meta, Op, wire};
use gt_transport::{FutexWaker, HostStream, Parked, Sleeping};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time within which a dropped link is resumed; after it the session is lost.
const RESUME_MAX: Duration = Duration::from_secs(10);
/// Words that may wait to be written; beyond it the program waits.
const OUTGOING_WORDS_MAX: usize = 1 << 22;
/// Bytes of frames that are kept until the dispatcher acknowledges them; at the limit nothing more
/// is sent. More than a fast network holds in a round trip.
const KEPT_BYTES_MAX: usize = 16 << 20;

struct TcpState {
    outgoing: Vec<u32>,
    link: Link,
    incoming: Vec<u32>,
    stream: Option<HostStream>,
    /// Number of streams so far: a thread that finds an old stream broken leaves the current one
    /// alone.
    streams: u64,
    /// True while the writer waits for words: waking it costs a system call.
    writer_waits: bool,
    closing: bool,
    closed: Option<String>,
}

impl TcpState {
    fn new(stream: HostStream) -> Self {
        Self {
            outgoing: Vec::new(),
            link: Link::new(Keep::Unacknowledged { bytes_max: KEPT_BYTES_MAX }),
            incoming: Vec::new(),
            stream: Some(stream),
            streams: 1,
            writer_waits: false,
            closing: false,
            closed: None,
        }
    }
}

struct SharedConnection {
    state: Mutex<TcpState>,
    /// Signals words to write, a new stream, or the end.
    writer: Condvar,
    /// Signals that words arrived, or the end.
    reader: Condvar,
    /// Wakes a thread of the program that reads.
    waker: FutexWaker,
    welcome: Welcome,
    address: String,
    credentials: Credentials,
}

pub(crate) struct TcpConnection {
    shared: Arc<SharedConnection>,
    inbox: SharedInbox,
    threads: Vec<JoinHandle<()>>,
}

impl SharedConnection {
    fn lock(&self) -> MutexGuard<'_, TcpState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_reader(&self) {
        self.reader.notify_all();
        self.waker.wake();
    }

    /// Gives up the stream with that number, if it is still the current one; the writer dials again.
    fn drop_stream(&self, number: u64) {
        let mut state = self.lock();
        if state.streams == number
            && let Some(stream) = state.stream.take()
        {
            drop(stream.socket().shutdown(Shutdown::Both));
        }
        drop(state);
        self.writer.notify_all();
    }
}

/// Sends the empty frame that declines the local socket: the session stays on TCP.
pub(crate) fn say_that_we_stay(stream: &mut HostStream) -> std::io::Result<()> {
    let header = FrameHeader { length_bytes: 0, sequence: 0, acknowledged: 0 };
    stream.write_all(&header.encode().map_err(std::io::Error::other)?)
}

/// Removes the time limits of the handshake: a busy dispatcher may take longer to answer.
fn without_limits(stream: &HostStream) {
    // This fails only for a duration of zero.
    drop(stream.socket().set_read_timeout(None));
    drop(stream.socket().set_write_timeout(None));
}

impl TcpConnection {
    pub(crate) fn new(
        stream: HostStream,
        welcome: Welcome,
        address: &str,
        credentials: &Credentials,
    ) -> Self {
        without_limits(&stream);
        let shared = Arc::new(SharedConnection {
            state: Mutex::new(TcpState::new(stream)),
            writer: Condvar::new(),
            reader: Condvar::new(),
            waker: FutexWaker::default(),
            welcome,
            address: address.to_owned(),
            credentials: credentials.clone(),
        });
        let inbox: SharedInbox = Arc::new(Mutex::new(TcpInbox {
            parked: shared.waker.parked(),
            shared: Arc::clone(&shared),
        }));
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

    /// Lets `append` add whole instructions or messages to the words that are written next.
    fn queue<T>(&mut self, append: impl FnOnce(&mut Vec<u32>) -> T) -> T {
        let mut state = self.shared.lock();
        let outcome = append(&mut state.outgoing);
        let writer_waits = std::mem::take(&mut state.writer_waits);
        drop(state);
        if writer_waits {
            self.shared.writer.notify_one();
        }
        outcome
    }
}

impl Connection for TcpConnection {
    fn has_room(&mut self) -> bool {
        let state = self.shared.lock();
        state.closed.is_none() && state.outgoing.len() < OUTGOING_WORDS_MAX
    }

    fn has_ample_room(&mut self) -> bool {
        self.shared.lock().outgoing.len() < OUTGOING_WORDS_MAX / 4 * 3
    }

    fn send(
        &mut self,
        instruction: &Instruction<'_>,
        _answers: &mut Answers,
    ) -> Result<(), String> {
        self.queue(|out| wire::encode(instruction, out)).map_err(|error| error.to_string())
    }

    fn send_words(
        &mut self,
        _op: Op,
        words: &mut [u32],
        _outputs: &[Meta],
        _answers: &mut Answers,
    ) -> Result<(), String> {
        self.queue(|out| out.extend_from_slice(words));
        Ok(())
    }

    fn say(&mut self, message: &FromClient<'_>, answers: &mut Answers) {
        if let Err(error) = self.queue(|out| message::encode(message, out)) {
            answers.fail_all(&error.to_string());
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

    fn address(&self) -> Option<&str> {
        Some(&self.shared.address)
    }

    fn describe(&self) -> String {
        let by = if self.shared.credentials.authority.is_some() { "TLS" } else { "TCP" };
        format!("dispatcher at {}, by {by}", self.shared.address)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn close(&mut self) {
        let goodbye = FromClient::Goodbye { reason: "the client ends its session" };
        let mut state = self.shared.lock();
        let encoded = message::encode(&goodbye, &mut state.outgoing);
        debug_assert!(encoded.is_ok(), "a goodbye fits a frame");
        // Set together with the goodbye: the dispatcher closes the connection when it reads that,
        // which must not be taken for a broken link.
        state.closing = true;
        drop(state);
        self.shared.writer.notify_all();
        for thread in self.threads.drain(..) {
            // A thread of ours that panicked has written that to stderr already.
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
    shared: Arc<SharedConnection>,
    parked: Parked,
}

impl Inbox for TcpInbox {
    fn take(&mut self, words: &mut Vec<u32>) {
        words.append(&mut self.shared.lock().incoming);
    }

    fn park(&mut self) -> bool {
        self.shared.waker.park();
        let state = self.shared.lock();
        let sleeps = state.incoming.is_empty() && state.closed.is_none();
        drop(state);
        if !sleeps {
            self.unpark();
        }
        sleeps
    }

    fn sleeping(&self) -> Sleeping<'_> {
        self.parked.sleeping()
    }

    fn unpark(&mut self) {
        self.shared.waker.unpark();
    }

    fn closed(&mut self) -> Option<String> {
        self.shared.lock().closed.clone()
    }
}

/// Writes the words that have gathered, as whole instructions, until the end; resumes a broken connection.
fn write_loop(shared: &SharedConnection) {
    loop {
        let Some(Next { mut stream, number, bytes, last }) = next_frames(shared) else { return };
        let written = stream.write_all(&bytes);
        if last {
            drop(stream.flush());
            drop(stream.socket().shutdown(Shutdown::Both));
            shared.lock().closed.get_or_insert_with(|| "the session was ended".to_owned());
            shared.wake_reader();
            return;
        }
        if written.is_err() {
            shared.drop_stream(number);
        }
    }
}

/// Bytes to write next, and the stream to write them to.
struct Next {
    stream: HostStream,
    number: u64,
    bytes: Vec<u8>,
    /// True if nothing follows.
    last: bool,
}

/// Waits for something to write. Resumes a broken connection first.
fn next_frames(shared: &SharedConnection) -> Option<Next> {
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
        let has_words = !state.outgoing.is_empty() || state.closing;
        if (has_words && state.link.may_send()) || state.link.owes_acknowledgement() {
            break;
        }
        state.writer_waits = true;
        state = shared.writer.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let TcpState { outgoing, link, stream, streams, closing, .. } = &mut *state;
    let mut bytes = Vec::new();
    let last = *closing && link.may_send();
    if link.may_send() {
        link.send(std::mem::take(outgoing), &mut bytes);
    }
    if bytes.is_empty() {
        link.acknowledge(&mut bytes);
    }
    let stream = stream.clone()?;
    Some(Next { stream, number: *streams, bytes, last })
}

/// Reads frames until the end.
fn read_loop(shared: &SharedConnection) {
    loop {
        let (stream, number) = {
            let mut state = shared.lock();
            loop {
                if state.closed.is_some() {
                    return;
                }
                match state.stream.clone() {
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
            shared.wake_reader();
            shared.writer.notify_all();
            return;
        }
        drop(state);
        shared.drop_stream(number);
    }
}

/// Takes frames in until the connection breaks.
fn read_frames(shared: &SharedConnection, mut stream: HostStream) {
    let mut header = [0; FrameHeader::BYTES];
    let mut words: Vec<u32> = Vec::new();
    while stream.read_exact(&mut header).is_ok() {
        let Ok(header) = shared.lock().link.header(&header) else { return };
        // The header's check has limited the length.
        words.resize(to_usize(header.length_bytes / 4), 0);
        if stream.read_exact(bytemuck::cast_slice_mut(&mut words)).is_err() {
            return;
        }
        let mut state = shared.lock();
        match state.link.is_new(header) {
            Ok(true) => {
                state.link.accept(header);
                state.incoming.extend_from_slice(&words);
            }
            // The frame was received before the connection broke.
            Ok(false) => {}
            Err(_) => return,
        }
        drop(state);
        shared.wake_reader();
        shared.writer.notify_all();
    }
}

/// Takes a broken connection up again; false when the session is lost.
fn resume(shared: &SharedConnection) -> bool {
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

fn try_resume(shared: &SharedConnection) -> Result<(), String> {
    let mut stream = connect_tcp(&shared.address, shared.credentials.authority.as_ref())
        .map_err(|error| error.to_string())?;
    let acknowledged = shared.lock().link.received();
    let resume =
        Resume { session: shared.welcome.session, secret: shared.welcome.secret, acknowledged };
    let hello =
        hello(shared.credentials.token.as_deref(), Capabilities::default(), Some(resume), None);
    let welcome = match greet(&mut stream, &hello, &shared.address) {
        Ok(welcome) => welcome,
        Err(error @ DialError::Refused { .. }) => {
            end(shared, &error.to_string());
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    };
    let mut again = Vec::new();
    let resumed = shared.lock().link.resume(welcome.acknowledged);
    if let Err(error) = resumed {
        end(shared, &error.to_string());
        return Ok(());
    }
    shared.lock().link.resend(&mut again);
    stream.write_all(&again).map_err(|error| error.to_string())?;
    without_limits(&stream);
    let mut state = shared.lock();
    state.streams += 1;
    state.stream = Some(stream);
    drop(state);
    shared.wake_reader();
    Ok(())
}

fn end(shared: &SharedConnection, reason: &str) {
    shared.lock().closed.get_or_insert_with(|| reason.to_owned());
    shared.wake_reader();
    shared.writer.notify_all();
}
