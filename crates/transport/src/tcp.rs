//! TCP connections between hosts: their options (no delay, large buffers, probes of a silent peer),
//! and acknowledgement by the other host.

#![allow(unsafe_code, reason = "std and rustix have no TCP_INFO")]

use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Requested buffer size in each direction: bytes in flight on 2.5 Gbit/s and 50 ms.
pub const BUFFER_BYTES: usize = 16 << 20;
/// Time limit for a process whose connection was closed to connect again, one lost packet included.
const RETURN_MAX: Duration = Duration::from_millis(500);
/// Granularity of the kernel's probes: whole seconds.
const PROBE_MIN: Duration = Duration::from_secs(1);
/// Factor between requested and reported buffer size: Linux counts the bookkeeping of a buffer into
/// its size, and doubles the request.
const GRANTED_FOR_ASKED: usize = 2;

/// Probes by which a connection detects that the other host does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Silence before each probe.
    pub interval: Duration,
    /// Number of unanswered probes after which the connection is broken.
    pub count: u32,
}

impl Probes {
    /// Probes for a time limit; a limit of zero means none.
    #[must_use]
    pub fn within(time: Duration, interval: Duration) -> Self {
        if time.is_zero() || interval.is_zero() {
            return Self { interval: Duration::ZERO, count: 0 };
        }
        let interval = interval.min(time);
        let intervals = time.as_nanos() / interval.as_nanos();
        Self { interval, count: u32::try_from(intervals - 1).unwrap_or(u32::MAX) }
    }
}

impl Default for Probes {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), count: 3 }
    }
}

/// Limits for resuming a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Probes after which a connection counts as broken.
    pub probes: Probes,
    /// Time without a connection after which the link is lost; `None` for never.
    pub resume: Option<Duration>,
}

impl LinkLimits {
    /// Time to wait for the other side, depending on the way in which the connection ended. A
    /// process that ends closes its connections; one that lives connects again at once.
    #[must_use]
    pub fn patience(&self, ended: ErrorKind) -> Option<Duration> {
        let is_closed = matches!(
            ended,
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        );
        if !is_closed {
            return self.resume;
        }
        Some(self.resume.map_or(RETURN_MAX, |resume| resume.min(RETURN_MAX)))
    }
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self { probes: Probes::default(), resume: Some(Duration::from_secs(10)) }
    }
}

/// Sets a connection's options, best before a connect or a listen: the buffers then exist from the
/// first packet.
///
/// # Errors
/// The kernel refuses an option: it is no TCP socket.
pub fn tune(stream: impl AsFd, probes: Probes) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&stream, true)?;
    sockopt::set_socket_keepalive(&stream, !probes.interval.is_zero())?;
    let interval = probes.interval.max(PROBE_MIN);
    sockopt::set_tcp_keepidle(&stream, interval)?;
    sockopt::set_tcp_keepintvl(&stream, interval)?;
    sockopt::set_tcp_keepcnt(&stream, probes.count.clamp(1, 127))?;
    tune_buffers(stream)
}

/// Watches if the other host acknowledges, with one look in each interval. A host that is there,
/// but busy, is not silent: its kernel acknowledges, and answers when it is asked for room.
#[derive(Clone, Debug)]
pub struct AnswerWatch {
    probes: Probes,
    next: Instant,
    unanswered: u32,
}

impl AnswerWatch {
    /// A watch that starts now.
    #[must_use]
    pub fn new(probes: Probes) -> Self {
        Self { probes, next: Instant::now() + probes.interval, unanswered: 0 }
    }

    /// Time between two looks; `None` if there are none.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        Some(self.probes.interval).filter(|interval| !interval.is_zero())
    }

    /// Looks, if an interval is over.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`]: the kernel was retransmitting at one look more than the
    /// allowed number of probes.
    pub fn look(&mut self, stream: impl AsFd) -> io::Result<()> {
        let now = Instant::now();
        if self.interval().is_none() || now < self.next {
            return Ok(());
        }
        self.next = now + self.probes.interval;
        self.unanswered = if is_unacknowledged(&stream)? { self.unanswered + 1 } else { 0 };
        if self.unanswered > self.probes.count {
            let text = format!("nothing was acknowledged in {} probes", self.unanswered);
            return Err(io::Error::new(ErrorKind::TimedOut, text));
        }
        Ok(())
    }

    /// Writes all of the bytes, however long the other side has no room for them, as long as its
    /// host answers. The stream's write timeout is [`Self::interval`].
    ///
    /// # Errors
    /// The connection is broken, or does not answer.
    pub fn write_all(&mut self, stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
        self.write_both(stream, bytes, &[])
    }

    /// Writes two slices, one after the other, as [`Self::write_all`] does one.
    ///
    /// # Errors
    /// The connection is broken, or does not answer.
    pub fn write_both(
        &mut self,
        mut stream: &TcpStream,
        first: &[u8],
        second: &[u8],
    ) -> io::Result<()> {
        let mut slices = [IoSlice::new(first), IoSlice::new(second)];
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0); // drops those that are empty
        while !rest.is_empty() {
            match stream.write_vectored(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.look(stream)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns true if the kernel has retransmitted something that the other host has not acknowledged,
/// or has asked for room more than once without an answer.
fn is_unacknowledged(stream: &impl AsFd) -> io::Result<bool> {
    /// Bytes read of `tcp_info`: state, congestion state, retransmits, window probes.
    const INFO_BYTES: usize = 4;
    let mut info = [0_u8; INFO_BYTES];
    let mut length = libc::socklen_t::try_from(INFO_BYTES).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` bytes, which the buffer has, and both outlive the
    // call.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let [_, _, repeated_sends, repeated_questions] = info;
    Ok(repeated_sends > 0 || repeated_questions > 1)
}

/// Asks for large buffers where that gives more than the kernel's own tuning would: a fixed size
/// ends the tuning.
///
/// # Errors
/// The kernel refuses an option.
pub fn tune_buffers(stream: impl AsFd) -> io::Result<()> {
    let buffers = SocketBuffers::of_this_host();
    if buffers.send.pays() {
        sockopt::set_socket_send_buffer_size(&stream, BUFFER_BYTES)?;
    }
    if buffers.receive.pays() {
        sockopt::set_socket_recv_buffer_size(&stream, BUFFER_BYTES)?;
    }
    Ok(())
}

/// Explains how to get the requested buffers, where the kernel grants less.
#[must_use]
pub fn clipped_buffers() -> Option<String> {
    let SocketBuffers { send, receive } = SocketBuffers::of_this_host();
    let least = send.granted.min(receive.granted) / GRANTED_FOR_ASKED;
    (least < BUFFER_BYTES).then(|| {
        format!(
            "the kernel grants TCP buffers of {} KiB where {} KiB are asked for: on fast links over long ways set \
             net.core.rmem_max and net.core.wmem_max to {BUFFER_BYTES} (sysctl -w)",
            least >> 10,
            BUFFER_BYTES >> 10,
        )
    })
}

/// Size that the kernel grants for a request of [`BUFFER_BYTES`], and maximum of its own tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BufferLimits {
    granted: usize,
    tuned_max: usize,
}

impl BufferLimits {
    const fn pays(self) -> bool {
        self.granted >= self.tuned_max
    }
}

#[derive(Clone, Copy, Debug)]
struct SocketBuffers {
    send: BufferLimits,
    receive: BufferLimits,
}

impl SocketBuffers {
    fn of_this_host() -> Self {
        static BUFFERS: OnceLock<SocketBuffers> = OnceLock::new();
        *BUFFERS.get_or_init(|| {
            let [send, receive] = granted().unwrap_or_default();
            let limits = |granted, file| BufferLimits { granted, tuned_max: tuned_max(file) };
            Self {
                send: limits(send, "/proc/sys/net/ipv4/tcp_wmem"),
                receive: limits(receive, "/proc/sys/net/ipv4/tcp_rmem"),
            }
        })
    }
}

/// Send and receive buffers of a socket that has requested them.
fn granted() -> io::Result<[usize; 2]> {
    let trial = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_send_buffer_size(&trial, BUFFER_BYTES)?;
    sockopt::set_socket_recv_buffer_size(&trial, BUFFER_BYTES)?;
    Ok([sockopt::socket_send_buffer_size(&trial)?, sockopt::socket_recv_buffer_size(&trial)?])
}

/// Third number in the file, after the least and the first size: the largest. Unknown counts as
/// unlimited: the kernel's tuning stays.
fn tuned_max(file: &str) -> usize {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().nth(2).and_then(|word| word.parse().ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{
        AnswerWatch, BUFFER_BYTES, BufferLimits, LinkLimits, Probes, clipped_buffers, granted,
        tune, tuned_max,
    };
    use rustix::net::sockopt;
    use std::io::{self, ErrorKind, Read};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::Duration;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_has_what_was_asked_for() {
        let (stream, _other) = connected();
        let before = sockopt::socket_recv_buffer_size(&stream).unwrap();
        tune(&stream, Probes { interval: Duration::from_secs(7), count: 4 }).unwrap();
        assert!(sockopt::tcp_nodelay(&stream).unwrap());
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), Duration::from_secs(7));
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), Duration::from_secs(7));
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), 4);
        let [send, receive] = granted().unwrap();
        if send >= tuned_max("/proc/sys/net/ipv4/tcp_wmem") {
            assert_eq!(sockopt::socket_send_buffer_size(&stream).unwrap(), send);
        }
        let is_set = receive >= tuned_max("/proc/sys/net/ipv4/tcp_rmem");
        let expected = if is_set { receive } else { before };
        assert_eq!(sockopt::socket_recv_buffer_size(&stream).unwrap(), expected);
    }

    #[test]
    fn a_host_that_answers_is_not_silent_however_little_room_it_has() {
        let (stream, other) = connected();
        let probes = Probes { interval: Duration::from_millis(1), count: 0 };
        let mut watch = AnswerWatch::new(probes);
        stream.set_write_timeout(watch.interval()).unwrap();
        let bytes = vec![7; 3 * BUFFER_BYTES]; // more than both buffers hold
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut first = [0];
                (&other).read_exact(&mut first).unwrap();
                assert_eq!(io::copy(&mut &other, &mut io::sink()).unwrap() + 1, 3 * (16 << 20));
            });
            watch.write_all(&stream, &bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        watch.look(&stream).unwrap();
    }

    #[test]
    fn as_many_probes_as_a_time_takes() {
        let seconds = Duration::from_secs;
        let within = |time, interval| Probes::within(seconds(time), seconds(interval));
        assert_eq!(within(60, 5), Probes { interval: seconds(5), count: 11 });
        assert_eq!(within(2, 5), Probes { interval: seconds(2), count: 0 });
        for (time, interval) in [(0, 5), (60, 0)] {
            assert_eq!(within(time, interval), Probes { interval: seconds(0), count: 0 });
        }
    }

    #[test]
    fn who_closed_a_connection_comes_back_soon_or_never() {
        let limits = LinkLimits { resume: None, ..LinkLimits::default() };
        assert_eq!(limits.patience(ErrorKind::TimedOut), None);
        assert_eq!(limits.patience(ErrorKind::UnexpectedEof), Some(super::RETURN_MAX));
        let limits = LinkLimits { resume: Some(Duration::from_millis(100)), ..limits };
        assert_eq!(limits.patience(ErrorKind::TimedOut), limits.resume);
        assert_eq!(limits.patience(ErrorKind::ConnectionReset), limits.resume);
    }

    #[test]
    fn without_an_interval_nothing_is_probed() {
        let (stream, _other) = connected();
        tune(&stream, Probes { interval: Duration::ZERO, count: 3 }).unwrap();
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
    }

    #[test]
    fn a_size_is_set_where_the_kernel_would_not_go_further_itself() {
        let pays = |granted, tuned_max| BufferLimits { granted, tuned_max }.pays();
        assert!(pays(32 << 20, 32 << 20));
        assert!(pays(8 << 20, 4 << 20));
        assert!(!pays(8 << 20, 32 << 20));
        assert!(!pays(0, usize::MAX));
    }

    #[test]
    fn the_line_is_there_where_the_kernel_clips_and_names_both_settings() {
        let is_clipped = granted().unwrap().iter().any(|&bytes| bytes < 2 * BUFFER_BYTES);
        let line = clipped_buffers();
        assert_eq!(line.is_some(), is_clipped);
        for name in ["net.core.rmem_max", "net.core.wmem_max"] {
            assert!(line.as_ref().is_none_or(|line| line.contains(name)), "{line:?}");
        }
    }
}
