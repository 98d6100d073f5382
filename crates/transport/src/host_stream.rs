//! A TCP connection to a process of another host, in clear or under TLS. Clones are one connection:
//! one thread may read while another one writes.

use crate::tcp::AnswerWatch;
use rustls::ClientConnection;
use std::fmt::{self, Debug, Formatter};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are taken from the kernel at a time: four records of TLS.
const READ_BYTES: usize = 64 * 1024;
/// Bytes that are encrypted at a time; while that lasts nothing is decrypted.
const SEAL_BYTES: usize = 64 * 1024;

/// A connection to another host.
#[derive(Clone, Debug)]
pub struct HostStream {
    socket: Arc<TcpStream>,
    tls: Option<Arc<TlsState>>,
}

/// State of TLS. Both threads take the first lock for computing only, never to wait for the network.
struct TlsState {
    connection: Mutex<ClientConnection>,
    /// Encrypted bytes that have arrived. Its lock is the reader's.
    arrived: Mutex<Arrived>,
    /// Buffer for encrypted bytes. Its lock is held until they are written: they have to arrive in
    /// the order in which they were encrypted.
    departing: Mutex<Vec<u8>>,
}

struct Arrived {
    buffer: Box<[u8]>,
    /// Range in the buffer that has not been decrypted.
    start: usize,
    end: usize,
}

impl Debug for TlsState {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("TlsState")
    }
}

impl From<TcpStream> for HostStream {
    fn from(socket: TcpStream) -> Self {
        Self { socket: Arc::new(socket), tls: None }
    }
}

impl HostStream {
    /// A connection after its TLS handshake.
    pub(crate) fn encrypted(socket: TcpStream, mut connection: ClientConnection) -> Self {
        // The writer takes all that it is given, at most SEAL_BYTES.
        connection.set_buffer_limit(None);
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        let tls = TlsState {
            connection: Mutex::new(connection),
            arrived: Mutex::new(Arrived { buffer, start: 0, end: 0 }),
            departing: Mutex::new(Vec::new()),
        };
        Self { socket: Arc::new(socket), tls: Some(Arc::new(tls)) }
    }

    /// The connection below, for its options, its addresses and its end. Bytes on it are no business
    /// of the caller.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Returns true if the bytes are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Writes all of the bytes, however long the other side has no room for them, as long as its
    /// host answers.
    ///
    /// # Errors
    /// The connection is broken, or does not answer.
    pub fn write_watched(&self, watch: &mut AnswerWatch, bytes: &[u8]) -> io::Result<()> {
        match &self.tls {
            None => watch.write_all(&self.socket, bytes),
            Some(tls) => tls.seal(bytes, |sealed| watch.write_all(&self.socket, sealed)),
        }
    }

    /// Takes in what has arrived on a readable socket, without waiting for more; returns true if a
    /// read has something to return.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn take_in(&self) -> io::Result<bool> {
        let Some(tls) = &self.tls else { return Ok(true) };
        let mut arrived = lock(&tls.arrived);
        // The socket is readable: one look does not block.
        arrived.fill(&self.socket)?;
        if arrived.start == arrived.end {
            tls.open(&mut arrived)?;
            return Ok(true); // the connection's end, which a read tells of
        }
        tls.open_all(&mut arrived)
    }

    /// Returns true if a read has something to return that a look at the socket does not show.
    #[must_use]
    pub fn has_taken_in(&self) -> bool {
        // A read tells of an error too.
        self.tls.as_ref().is_some_and(|tls| tls.open_all(&mut lock(&tls.arrived)).unwrap_or(true))
    }
}

impl Read for &HostStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return (&*self.socket).read(out) };
        let mut arrived = lock(&tls.arrived);
        // The loop ends: each round decrypts some bytes, or waits for some.
        loop {
            match lock(&tls.connection).reader().read(out) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Frames show what is missing, as on a connection in clear.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if arrived.start == arrived.end {
                arrived.fill(&self.socket)?;
            }
            tls.open(&mut arrived)?;
        }
    }
}

impl Write for &HostStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => (&*self.socket).write(bytes),
            Some(tls) => {
                tls.seal(bytes, |sealed| (&*self.socket).write_all(sealed)).map(|()| bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for HostStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }
}

impl Write for HostStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Arrived {
    /// Reads once from the socket into the empty buffer; zero bytes are the connection's end.
    fn fill(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        if self.start < self.end {
            return Ok(());
        }
        (self.start, self.end) = (0, socket.read(&mut self.buffer)?);
        Ok(())
    }
}

impl TlsState {
    /// Decrypts some of the bytes that have arrived; none are the connection's end.
    fn open(&self, arrived: &mut Arrived) -> io::Result<()> {
        let mut rest = arrived.buffer.get(arrived.start..arrived.end).unwrap_or_default();
        let mut connection = lock(&self.connection);
        arrived.start += connection.read_tls(&mut rest)?;
        connection.process_new_packets().map_err(|error| {
            io::Error::new(ErrorKind::InvalidData, format!("the encryption is broken: {error}"))
        })?;
        Ok(())
    }

    /// Decrypts the bytes that have arrived until a read has something to return; false if it has
    /// nothing.
    fn open_all(&self, arrived: &mut Arrived) -> io::Result<bool> {
        // The loop ends: each round decrypts some of the bytes.
        while !self.is_readable() && arrived.start < arrived.end {
            self.open(arrived)?;
        }
        Ok(self.is_readable())
    }

    /// Encrypts the bytes and sends them, in parts.
    fn seal(&self, bytes: &[u8], mut send: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut departing = lock(&self.departing);
        for part in bytes.chunks(SEAL_BYTES) {
            departing.clear();
            let mut connection = lock(&self.connection);
            connection.writer().write_all(part)?;
            while connection.wants_write() {
                connection.write_tls(&mut *departing)?;
            }
            drop(connection);
            send(&departing)?;
        }
        Ok(())
    }

    /// Returns true if a read returns at once: with decrypted bytes, or at the end.
    fn is_readable(&self) -> bool {
        let state = lock(&self.connection).process_new_packets();
        // A read also tells of an error.
        state.map_or(true, |state| state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
    }
}

/// A thread that panicked has left no half-made state behind: rustls has none between two calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
