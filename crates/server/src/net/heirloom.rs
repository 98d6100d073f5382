//! Whatever a standby inherits of the sockets' side: listeners, options, the lines of the token file,
//! and the certificate.

use super::listeners::{InheritedListeners, Listeners};
use crate::certificate::ServerCertificate;
use crate::options::ServerOptions;
use crate::tokens::TokenList;
use std::io;
use std::os::fd::RawFd;

/// Copies that the core's thread keeps, whose memory a standby has.
#[derive(Debug)]
pub(crate) struct Heirloom {
    listeners: InheritedListeners,
    pub options: ServerOptions,
    /// The token file as it was read last.
    pub tokens: Option<TokenList>,
    /// The certificate and its key, as they were read at the start.
    pub certificate: Option<ServerCertificate>,
}

impl Heirloom {
    /// # Errors
    /// No descriptors left.
    pub fn new(listeners: &Listeners, options: &ServerOptions) -> io::Result<Self> {
        Ok(Self {
            listeners: listeners.bequeath()?,
            options: options.clone(),
            tokens: None,
            certificate: None,
        })
    }

    /// Descriptors of the listeners.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.listeners.descriptors()
    }

    /// Listeners of the process that goes on.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn inherit(&self) -> io::Result<Listeners> {
        self.listeners.inherit()
    }
}
