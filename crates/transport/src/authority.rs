//! The cluster's authority, by whose certificate a client or worker knows its dispatcher, and the
//! TLS handshake of a connection to it.

use crate::host_stream::HostStream;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Certificate of an authority.
#[derive(Clone, Debug)]
pub struct Authority {
    path: PathBuf,
    config: Arc<ClientConfig>,
}

/// Reason why a connection is not encrypted, as shown to the user.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The file is not there.
    #[error("GT_TLS_CA: cannot read the authority's certificate {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Its fault.
        source: io::Error,
    },
    /// The file is something else.
    #[error(
        "GT_TLS_CA: {} holds no certificate of an authority ({why}): it is the ca.pem that `gt cert` writes",
        path.display()
    )]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// Content of the file in its place.
        why: String,
    },
    /// The name cannot stand in a certificate.
    #[error("{0:?} is no host name or address that a certificate could be for")]
    Name(String),
    /// The other side does not speak TLS.
    #[error(
        "GT_TLS_CA asks for TLS, and no TLS handshake came ({0}): if the dispatcher has no certificate, start it with --tls-cert and --tls-key, or unset GT_TLS_CA"
    )]
    NoTls(String),
    /// Signed by somebody else.
    #[error(
        "the dispatcher's certificate is not signed by the authority in {} (GT_TLS_CA): copy the ca.pem beside the certificate that the dispatcher uses, or somebody else answers there",
        .0.display()
    )]
    Stranger(PathBuf),
    /// Over its time.
    #[error(
        "the dispatcher's certificate has expired: on its host write a new one (`gt cert DIR`, which keeps the authority) and restart it"
    )]
    Expired,
    /// Its time has not begun: one of the two clocks is wrong.
    #[error("the dispatcher's certificate is not valid yet: compare the clocks of the two hosts")]
    NotYet,
    /// For other hosts.
    #[error(
        "the dispatcher's certificate is not for {0:?}: on its host write one that is (`gt cert DIR --host {0}`, which keeps the authority) and restart it"
    )]
    OtherHost(String),
    /// Another failure.
    #[error("the TLS handshake failed: {0}")]
    Other(String),
}

impl Authority {
    /// Reads the certificate from a file.
    ///
    /// # Errors
    /// There is no such file, or no certificate in it.
    pub fn read(path: &Path) -> Result<Self, AuthorityError> {
        let bytes = std::fs::read(path)
            .map_err(|source| AuthorityError::Read { path: path.to_owned(), source })?;
        let wrong = |why: String| AuthorityError::NoCertificate { path: path.to_owned(), why };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&bytes) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("nothing in it is one".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // A ticket would be bytes on the connection that no message follows.
        config.resumption = Resumption::disabled();
        Ok(Self { path: path.to_owned(), config: Arc::new(config) })
    }

    /// Encrypts a new connection, after checking that `host` is at its other end. The socket's
    /// timeouts hold for the handshake.
    ///
    /// # Errors
    /// The other side is not the host, or does not speak TLS.
    pub fn secure(&self, socket: TcpStream, host: &str) -> Result<HostStream, AuthorityError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|_| AuthorityError::Name(host.to_owned()))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), name);
        let mut connection =
            connection.map_err(|error| AuthorityError::Other(error.to_string()))?;
        while connection.is_handshaking() || connection.wants_write() {
            if let Err(error) = connection.complete_io(&mut &socket) {
                return Err(self.explain(&error, host));
            }
        }
        Ok(HostStream::encrypted(socket, connection))
    }

    fn explain(&self, error: &io::Error, host: &str) -> AuthorityError {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidCertificate(fault)) => self.explain_certificate(fault, host),
            Some(rustls::Error::InvalidMessage(fault)) => {
                AuthorityError::NoTls(format!("its first bytes are something else, {fault:?}"))
            }
            Some(other) => AuthorityError::Other(other.to_string()),
            None if is_closed(error.kind()) => {
                AuthorityError::NoTls("the connection was closed".to_owned())
            }
            None if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                AuthorityError::NoTls("nothing answered".to_owned())
            }
            None => AuthorityError::Other(error.to_string()),
        }
    }

    fn explain_certificate(&self, fault: &CertificateError, host: &str) -> AuthorityError {
        use CertificateError as Fault;
        if matches!(fault, Fault::Expired | Fault::ExpiredContext { .. }) {
            AuthorityError::Expired
        } else if matches!(fault, Fault::NotValidYet | Fault::NotValidYetContext { .. }) {
            AuthorityError::NotYet
        } else if matches!(fault, Fault::NotValidForName | Fault::NotValidForNameContext { .. }) {
            AuthorityError::OtherHost(host.to_owned())
        } else if matches!(fault, Fault::UnknownIssuer | Fault::BadSignature) {
            AuthorityError::Stranger(self.path.clone())
        } else {
            AuthorityError::Other(format!("{fault:?}"))
        }
    }
}

const fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
