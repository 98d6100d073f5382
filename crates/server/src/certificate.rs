//! The dispatcher's certificate and key, as `--tls-cert` and `--tls-key` name them.

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Bits of a file's mode by which others than its owner reach it.
const OTHERS: u32 = 0o077;

/// Fault of a certificate or its key.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// It cannot be read, or is something else.
    #[error("{option} {}: {why}", path.display())]
    File {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Its fault.
        why: String,
    },
    /// The two do not belong together, or the key is of an unknown kind.
    #[error("--tls-cert and --tls-key do not fit each other: {0}")]
    Pair(rustls::Error),
    /// Others than its owner can read the key.
    #[error("--tls-key {} can be read by others: chmod 600 it", .0.display())]
    Readable(PathBuf),
}

/// A certificate with those that sign it, and its key.
#[derive(Debug)]
pub(crate) struct ServerCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Reads a certificate and its key.
pub(crate) fn read(certificate: &Path, key: &Path) -> Result<ServerCertificate, TlsFileError> {
    let fault = |option, path: &Path| {
        let path = path.to_owned();
        move |error: rustls::pki_types::pem::Error| TlsFileError::File {
            option,
            path,
            why: error.to_string(),
        }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(fault("--tls-cert", certificate))?;
    let mode = std::fs::metadata(key).map_or(0, |file| file.permissions().mode());
    if mode & OTHERS != 0 {
        return Err(TlsFileError::Readable(key.to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(fault("--tls-key", key))?;
    Ok(ServerCertificate { chain, key })
}

impl ServerCertificate {
    /// Encrypts connections with them. It has state of its own, which threads lock: a standby makes
    /// another one.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsFileError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsFileError::Pair)?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(TlsFileError::Pair)?;
        // A ticket would be bytes on the connection that no message follows.
        config.send_tls13_tickets = 0;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
