//! Bytes and descriptors over a Unix socket, and peers that close.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a failed test is a panic"
)]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use gt_transport::{
    Consumer, DescriptorError, FDS_MAX, Producer, create, drain_eventfd, eventfd, peer_closed,
    receive_with_fds, send_with_fds, socket_pair,
};
use rustix::io::FdFlags;

fn streams() -> (UnixStream, UnixStream) {
    let (one, other) = socket_pair().unwrap();
    (one.into(), other.into())
}

#[test]
fn a_ring_and_an_eventfd_travel() {
    let (client, server) = socket_pair().unwrap();
    let ring = create(1024).unwrap();
    let waker = eventfd().unwrap();
    send_with_fds(server.as_fd(), b"hello", &[ring.as_fd(), waker.as_fd()]).unwrap();

    let mut buffer = [0; 64];
    let (bytes, fds) = receive_with_fds(client.as_fd(), &mut buffer, 2).unwrap();
    assert_eq!(&buffer[..bytes], b"hello");
    for fd in &fds {
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC), "{fd:?}");
    }
    let [their_ring, their_eventfd] = <[OwnedFd; 2]>::try_from(fds).unwrap();
    let mut producer = Producer::new(their_ring).unwrap();
    producer.set_waker(their_eventfd);
    let mut consumer = Consumer::new(ring).unwrap();
    assert!(consumer.park_begin());
    assert!(producer.write(&[&[1, 2, 3]]));
    assert_eq!(drain_eventfd(waker.as_fd()).unwrap(), 1);
    assert_eq!(consumer.available(), 3);
}

#[test]
fn bytes_travel_alone_and_end() {
    let (one, other) = socket_pair().unwrap();
    send_with_fds(one.as_fd(), b"words", &[]).unwrap();
    let mut buffer = [0; 3];
    assert_eq!(receive_with_fds(other.as_fd(), &mut buffer, 0).unwrap().0, 3);
    assert_eq!(receive_with_fds(other.as_fd(), &mut buffer, 0).unwrap().0, 2);
    drop(one);
    assert_eq!(receive_with_fds(other.as_fd(), &mut buffer, 4).unwrap().0, 0);
}

#[test]
fn a_long_message_waits_for_its_reader() {
    let (one, mut other) = streams();
    let bytes: Vec<u8> = (0..4 << 20).map(|index: u32| index.to_le_bytes()[1]).collect();
    let copy = bytes.clone();
    let sender = thread::spawn(move || send_with_fds(one.as_fd(), &copy, &[]));
    let mut received = Vec::new();
    other.read_to_end(&mut received).unwrap();
    sender.join().unwrap().unwrap();
    assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
}

#[test]
fn impossible_messages_are_refused() {
    let (one, other) = socket_pair().unwrap();
    let many: Vec<BorrowedFd<'_>> = vec![other.as_fd(); FDS_MAX + 1];
    let answer = send_with_fds(one.as_fd(), b"x", &many);
    assert!(matches!(answer, Err(DescriptorError::TooMany { count }) if count == FDS_MAX + 1));
    let answer = send_with_fds(one.as_fd(), b"", &many[..2]);
    assert!(matches!(answer, Err(DescriptorError::NoBytes { count: 2 })));
    let answer = receive_with_fds(one.as_fd(), &mut [0; 8], FDS_MAX + 1);
    assert!(matches!(answer, Err(DescriptorError::TooMany { .. })));
}

#[test]
fn a_full_message_arrives_and_a_surplus_is_closed() {
    let (one, other) = socket_pair().unwrap();
    let (kept, sent) = streams();
    send_with_fds(one.as_fd(), b"x", &[sent.as_fd(); FDS_MAX]).unwrap();
    let (_, fds) = receive_with_fds(other.as_fd(), &mut [0; 8], FDS_MAX).unwrap();
    assert_eq!(fds.len(), FDS_MAX);
    drop(fds);
    for limit in [0, 1, 2] {
        send_with_fds(one.as_fd(), b"x", &[sent.as_fd(); 3]).unwrap();
        let answer = receive_with_fds(other.as_fd(), &mut [0; 8], limit);
        assert!(
            matches!(answer, Err(DescriptorError::Truncated { limit: seen }) if seen == limit),
            "{answer:?}"
        );
    }
    assert!(!peer_closed(kept.as_fd()));
    drop(sent);
    assert!(peer_closed(kept.as_fd()), "a refused copy was left open");
}

#[test]
fn a_message_to_the_dead_is_an_error() {
    let (one, other) = socket_pair().unwrap();
    drop(other);
    let answer = send_with_fds(one.as_fd(), b"x", &[]);
    assert!(
        matches!(&answer, Err(DescriptorError::System { source, .. })
            if source.kind() == std::io::ErrorKind::BrokenPipe),
        "{answer:?}"
    );
}

#[test]
fn an_empty_nonblocking_socket_would_block() {
    let (one, _other) = streams();
    one.set_nonblocking(true).unwrap();
    let answer = receive_with_fds(one.as_fd(), &mut [0; 8], 1);
    assert!(
        matches!(&answer, Err(DescriptorError::System { source, .. })
            if source.kind() == std::io::ErrorKind::WouldBlock),
        "{answer:?}"
    );
}

#[test]
fn a_peer_is_closed_when_it_is() {
    let (mine, theirs) = streams();
    assert!(!peer_closed(mine.as_fd()));
    (&theirs).write_all(b"farewell").unwrap();
    assert!(!peer_closed(mine.as_fd()), "bytes wait, and the peer lives");
    drop(theirs);
    assert!(peer_closed(mine.as_fd()), "bytes wait, and the peer is dead");
    let mut bytes = Vec::new();
    (&mine).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"farewell", "looking took nothing away");
    assert!(peer_closed(mine.as_fd()));
}

#[test]
fn a_peer_that_only_stops_sending_counts_after_its_last_byte() {
    let (mine, theirs) = streams();
    (&theirs).write_all(b"x").unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    assert!(!peer_closed(mine.as_fd()), "a byte waits");
    (&mine).read_exact(&mut [0]).unwrap();
    assert!(peer_closed(mine.as_fd()));
}

#[test]
fn an_eventfd_counts_and_is_drained() {
    let waker = eventfd().unwrap();
    assert_eq!(drain_eventfd(waker.as_fd()).unwrap(), 0);
    for _ in 0..3 {
        rustix::io::write(&waker, &1_u64.to_ne_bytes()).unwrap();
    }
    assert_eq!(drain_eventfd(waker.as_fd()).unwrap(), 3);
    assert_eq!(drain_eventfd(waker.as_fd()).unwrap(), 0);
}
