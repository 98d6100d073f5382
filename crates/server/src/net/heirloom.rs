//! Whatever a standby inherits of the sockets' side: listeners and options. Tokens, certificates and the
//! audit log are not among it: the options refuse them beside a standby.

use super::listeners::{InheritedListeners, Listeners};
use crate::options::ServerOptions;
use std::io;
use std::os::fd::RawFd;

/// Copies that the core's thread keeps, whose memory a standby has.
#[derive(Debug)]
pub(crate) struct Heirloom {
    listeners: InheritedListeners,
    pub options: ServerOptions,
}

impl Heirloom {
    /// # Errors
    /// No descriptors left.
    pub fn new(listeners: &Listeners, options: &ServerOptions) -> io::Result<Self> {
        Ok(Self { listeners: listeners.bequeath()?, options: options.clone() })
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
