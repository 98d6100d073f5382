//! Admission of callers: before and after their announcement, and strangers. No test waits for a
//! time: each loop ends when its condition holds, and a test that never ends has failed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use gt_transport::calls::{Callee, Callers, SECRET_BYTES, STRANGERS_MAX, WorkerCall};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

type Secret = [u8; SECRET_BYTES];

const EARLY: (u32, Secret) = (3, [3; SECRET_BYTES]);
const OTHER: (u32, Secret) = (7, [7; SECRET_BYTES]);
/// Announced, but never calls: without an announcement the listener is not read.
const NOBODY: (u32, Secret) = (9, [9; SECRET_BYTES]);

struct House {
    callers: Callers<Secret>,
    address: String,
}

impl House {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { callers: Callers::new(Some(listener)), address }
    }

    fn expect(&mut self, (peer, secret): (u32, Secret)) {
        self.callers.expect(peer, secret);
    }

    fn called_by(&self, (peer, secret): (u32, Secret)) -> TcpStream {
        self.called_again(peer, secret, 0)
    }

    fn called_again(&self, index: u32, secret: Secret, received: u64) -> TcpStream {
        Callee { address: self.address.clone(), index, secret }.call(received).unwrap()
    }

    /// The next caller that is admitted.
    fn next(&mut self) -> (u32, TcpStream) {
        loop {
            let mut arrived = self.callers.arrived();
            assert!(arrived.len() <= 1, "{arrived:?}");
            if let Some(WorkerCall { peer, received, stream }) = arrived.pop() {
                assert_eq!(received, 0);
                return (peer, stream);
            }
            thread::yield_now();
        }
    }

    /// Looks, admitting no caller, until the caller's connection is closed.
    fn turns_away(&mut self, caller: &mut TcpStream) {
        caller.set_nonblocking(true).unwrap();
        loop {
            assert!(self.callers.arrived().is_empty());
            match caller.read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                Ok(0) => return,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                answer => panic!("{answer:?}"),
            }
        }
    }
}

/// Checks that bytes of the caller arrive at the other end.
fn assert_connected(caller: &mut TcpStream, stream: &mut TcpStream) {
    stream.set_nonblocking(false).unwrap();
    caller.write_all(b"hello").unwrap();
    let mut received = [0; 5];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"hello");
}

#[test]
fn an_announced_worker_is_let_in_when_it_calls() {
    let mut house = House::new();
    house.expect(OTHER);
    assert!(house.callers.arrived().is_empty());
    let mut caller = house.called_by(OTHER);
    let (peer, mut stream) = house.next();
    assert_eq!(peer, OTHER.0);
    assert!(!house.callers.is_expecting());
    assert_connected(&mut caller, &mut stream);
}

#[test]
fn a_worker_that_calls_before_it_is_announced_is_let_in_when_it_is() {
    let mut house = House::new();
    house.expect(OTHER);
    let mut early = house.called_by(EARLY);
    let _other = house.called_by(OTHER);
    // It is behind the early one, which has been read once it is admitted.
    let (peer, _stream) = house.next();
    assert_eq!(peer, OTHER.0);
    house.expect(NOBODY);
    assert!(house.callers.arrived().is_empty());
    house.expect(EARLY);
    let (peer, mut stream) = house.next();
    assert_eq!(peer, EARLY.0);
    assert_connected(&mut early, &mut stream);
}

#[test]
fn a_worker_that_calls_before_anybody_is_announced_waits_to_be_announced() {
    let mut house = House::new();
    let mut early = house.called_by(EARLY);
    assert!(house.callers.arrived().is_empty());
    house.expect(EARLY);
    let (peer, mut stream) = house.next();
    assert_eq!(peer, EARLY.0);
    assert_connected(&mut early, &mut stream);
}

#[test]
fn who_is_never_announced_goes_when_many_have_come_after_it() {
    let mut house = House::new();
    house.expect(NOBODY);
    let mut first = house.called_by(EARLY);
    let _silent: Vec<_> =
        (0..STRANGERS_MAX).map(|_| TcpStream::connect(&house.address).unwrap()).collect();
    house.turns_away(&mut first);
    house.expect(EARLY);
    assert!(house.callers.arrived().is_empty());
    let _again = house.called_by(EARLY);
    assert_eq!(house.next().0, EARLY.0);
}

#[test]
fn who_shows_another_secret_or_speaks_otherwise_is_turned_away() {
    let mut house = House::new();
    house.expect(OTHER);
    let mut wrong = house.called_by((OTHER.0, EARLY.1));
    house.turns_away(&mut wrong);
    let mut browser = TcpStream::connect(&house.address).unwrap();
    browser.write_all(b"GET / HTTP/1.1\r\nHost: workers\r\n").unwrap();
    house.turns_away(&mut browser);
    // An early caller whose secret turns out to be another's.
    let mut early = house.called_by((EARLY.0, OTHER.1));
    house.expect(EARLY);
    house.turns_away(&mut early);
    let _caller = house.called_by(OTHER);
    assert_eq!(house.next().0, OTHER.0);
    assert!(house.callers.is_expecting());
}

#[test]
fn a_call_may_come_in_parts() {
    let mut house = House::new();
    house.expect(OTHER);
    let mut caller = TcpStream::connect(&house.address).unwrap();
    caller.set_nodelay(true).unwrap();
    let said = [&b"GTd\x02"[..], &OTHER.0.to_le_bytes(), &OTHER.1, &[0; 8]].concat();
    for byte in &said {
        assert!(house.callers.arrived().is_empty());
        caller.write_all(&[*byte]).unwrap();
    }
    assert_eq!(house.next().0, OTHER.0);
}

#[test]
fn a_worker_that_was_let_in_may_call_again_until_its_announcement_is_withdrawn() {
    let mut house = House::new();
    house.expect(OTHER);
    let _first = house.called_by(OTHER);
    assert_eq!(house.next().0, OTHER.0);
    assert!(house.callers.has_admitted());
    let _again = house.called_again(OTHER.0, OTHER.1, 17);
    let call = loop {
        if let Some(call) = house.callers.arrived().pop() {
            break call;
        }
        thread::yield_now();
    };
    assert_eq!((call.peer, call.received), (OTHER.0, 17));
    // The next worker of the index calls before it is announced, with a secret of its own.
    let _next = house.called_by((OTHER.0, EARLY.1));
    assert!(house.callers.arrived().is_empty());
    house.callers.forget(OTHER.0);
    house.expect((OTHER.0, EARLY.1));
    let _late = house.called_again(OTHER.0, OTHER.1, 17);
    assert_eq!(house.next().0, OTHER.0);
    house.expect(NOBODY);
    assert!(house.callers.arrived().is_empty());
}
