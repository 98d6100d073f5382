//! A connection of TCP, in clear or under TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

#[derive(Debug)]
pub(crate) enum PeerSocket {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Halves of a connection.
pub(crate) type ReadHalf = Box<dyn AsyncRead + Unpin>;
pub(crate) type WriteHalf = Box<dyn AsyncWrite + Unpin>;

impl PeerSocket {
    /// The connection below. Bytes on it are no business of the caller.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Clear(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The connection below, on which nothing is read or written any more.
    pub fn into_tcp(self) -> TcpStream {
        match self {
            Self::Clear(stream) => stream,
            Self::Tls(stream) => stream.into_inner().0,
        }
    }

    pub fn split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Clear(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Box::new(writer))
            }
            Self::Tls(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                (Box::new(reader), Box::new(writer))
            }
        }
    }

    /// Name of the transport in log lines.
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Clear(_) => "TCP",
            Self::Tls(_) => "TLS",
        }
    }
}

impl AsyncRead for PeerSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for PeerSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
