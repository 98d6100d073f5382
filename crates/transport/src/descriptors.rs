//! Unix sockets between GT's processes: bytes with file descriptors, and detection of a closed
//! peer. The bytes have no meaning here.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use thiserror::Error;

/// Maximum number of descriptors in one message: a few rings, an eventfd and a slab. The kernel
/// allows 253.
pub const FDS_MAX: usize = 16;
/// Time for which a peer may leave a socket full before sending to it fails. These messages are
/// small and rare, so a peer that has not read for this long is dead.
const SEND_STALL_MAX: Duration = Duration::from_secs(5);
/// Room for control data with [`FDS_MAX`] descriptors.
const CONTROL_BYTES_MAX: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));

/// Reason why bytes or descriptors were not transferred.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// More descriptors than a message may have: ours to send, or a caller's limit above ours.
    #[error("{count} descriptors in one message: at most {FDS_MAX} are allowed")]
    TooMany {
        /// Number of descriptors.
        count: usize,
    },
    /// Descriptors need a byte to carry them; a message without bytes would lose them.
    #[error("{count} descriptors to send, but no byte to carry them")]
    NoBytes {
        /// Number of descriptors.
        count: usize,
    },
    /// The peer sent more descriptors than the receiver accepts. All of them are closed.
    #[error("a peer sent more than the {limit} descriptors expected")]
    Truncated {
        /// Number of descriptors that the receiver accepts.
        limit: usize,
    },
    /// The peer did not read for some seconds.
    #[error("a peer left {unsent} of {length} bytes unread")]
    Stalled {
        /// Bytes not yet sent.
        unsent: usize,
        /// Bytes of the whole message.
        length: usize,
    },
    /// A system call failed; `WouldBlock` means that a non-blocking socket has nothing to receive.
    #[error("{call} on a Unix socket failed: {source}")]
    System {
        /// Name of the call.
        call: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl DescriptorError {
    fn system(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { call, source: errno.into() }
    }
}

/// Sends all the bytes; the descriptors go with the first of them. The peer gets duplicates.
///
/// # Errors
/// [`DescriptorError`]: too many descriptors, no byte to carry them, a peer that does not
/// read, or an error of the kernel (`EPIPE` from a closed peer; there is no SIGPIPE).
pub fn send_with_fds(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(), DescriptorError> {
    if fds.len() > FDS_MAX {
        return Err(DescriptorError::TooMany { count: fds.len() });
    }
    if bytes.is_empty() && !fds.is_empty() {
        return Err(DescriptorError::NoBytes { count: fds.len() });
    }
    let (mut unsent, mut fds) = (bytes, fds);
    // The loop ends because each round sends something, or waits for room, which has a time limit.
    while !unsent.is_empty() {
        match send_some(socket, unsent, fds) {
            Ok(sent) => {
                unsent = unsent.get(sent..).unwrap_or_default();
                fds = &[];
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if !writable_in_time(socket)? {
                    let (unsent, length) = (unsent.len(), bytes.len());
                    return Err(DescriptorError::Stalled { unsent, length });
                }
            }
            Err(errno) => return Err(DescriptorError::system("sendmsg")(errno)),
        }
    }
    Ok(())
}

/// Receives up to `buffer.len()` bytes and the descriptors that came with them, closed on exec.
/// Zero bytes mean the end of the stream. Zero bytes are the end of the stream. On a stream a
/// message may arrive in chunks.
///
/// # Errors
/// [`DescriptorError`]: `max_fds` above [`FDS_MAX`], more descriptors than `max_fds` (none
/// is kept), or an error of the kernel (`WouldBlock` on a non-blocking socket).
pub fn receive_with_fds(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    max_fds: usize,
) -> Result<(usize, Vec<OwnedFd>), DescriptorError> {
    if max_fds > FDS_MAX {
        return Err(DescriptorError::TooMany { count: max_fds });
    }
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES_MAX];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = receive_once(socket, buffer, &mut control)?;
    // The room is always FDS_MAX, so a peer's surplus is counted here, or cut off by the kernel.
    let mut fds = Vec::with_capacity(max_fds);
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    if fds.len() > max_fds || message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(DescriptorError::Truncated { limit: max_fds });
    }
    Ok((message.bytes, fds))
}

/// Two connected stream sockets, closed on exec.
///
/// # Errors
/// An error of the kernel: no descriptors left.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), DescriptorError> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(DescriptorError::system("socketpair"))
}

/// A non-blocking eventfd, closed on exec. Written by [`Producer`](crate::ring::Producer), polled and
/// drained by the consumer's thread.
///
/// # Errors
/// An error of the kernel: no descriptors left.
pub fn eventfd() -> Result<OwnedFd, DescriptorError> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(DescriptorError::system("eventfd"))
}

/// Resets an eventfd to zero and returns its count of writes.
///
/// # Errors
/// An error of the kernel, if the descriptor is no non-blocking eventfd.
pub fn drain_eventfd(eventfd: BorrowedFd<'_>) -> Result<u64, DescriptorError> {
    let mut count = [0_u8; 8];
    match rustix::io::read(eventfd, &mut count) {
        Ok(_) => Ok(u64::from_ne_bytes(count)),
        Err(Errno::AGAIN) => Ok(0),
        Err(errno) => Err(DescriptorError::system("read")(errno)),
    }
}

/// Returns true if the peer of a stream socket has closed it (or died). Never blocks, and consumes
/// no bytes. Bytes that the peer wrote before it closed can still be received.
#[must_use]
pub fn peer_closed(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::IN | PollFlags::RDHUP)];
    let ready = rustix::event::poll(&mut polled, Some(&Timespec::default()));
    let events = polled.map(|one| one.revents()).into_iter().next().unwrap_or(PollFlags::empty());
    if ready.is_err() {
        return false; // Interrupted: it may be closed; callers ask again.
    }
    if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return true;
    }
    // A peer that only shut down its sending side is detected by the end of stream.
    events.intersects(PollFlags::IN | PollFlags::RDHUP) && at_end(socket)
}

fn at_end(socket: BorrowedFd<'_>) -> bool {
    let mut byte = [0_u8; 1];
    match rustix::net::recv(socket, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, received)) => received == 0,
        Err(errno) => !matches!(errno, Errno::AGAIN | Errno::INTR),
    }
}

fn send_some(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES_MAX];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "{} descriptors do not fit into {CONTROL_BYTES_MAX} bytes", fds.len());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}

fn receive_once(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
) -> Result<RecvMsg, DescriptorError> {
    loop {
        let mut slices = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(socket, &mut slices, control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            done => return done.map_err(DescriptorError::system("recvmsg")),
        }
    }
}

fn writable_in_time(socket: BorrowedFd<'_>) -> Result<bool, DescriptorError> {
    let limit = Timespec::try_from(SEND_STALL_MAX).unwrap_or_default();
    let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
    match rustix::event::poll(&mut polled, Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true), // The caller tries again; sendmsg reports errors.
        Err(errno) => Err(DescriptorError::system("poll")(errno)),
    }
}
