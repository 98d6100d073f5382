//! Whatever a standby inherits of the sockets' side: listeners, tokens, options.

use super::listeners::{InheritedListeners, Listeners};
use crate::options::ServerOptions;
use crate::tokens::TokenList;
use std::io;
use std::os::fd::RawFd;

/// Copies that the core's thread keeps, whose memory a standby has.
#[derive(Debug)]
pub(crate) struct Heirloom {
    listeners: InheritedListeners,
    tokens: Option<TokenList>,
    pub options: ServerOptions,
}

impl Heirloom {
    /// # Errors
    /// No descriptors left.
    pub fn new(
        listeners: &Listeners,
        tokens: Option<&TokenList>,
        options: &ServerOptions,
    ) -> io::Result<Self> {
        Ok(Self {
            listeners: listeners.bequeath()?,
            tokens: tokens.cloned(),
            options: options.clone(),
        })
    }

    /// Descriptors of the listeners.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.listeners.descriptors()
    }

    /// Listeners and tokens of the process that goes on.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn inherit(&self) -> io::Result<(Listeners, Option<TokenList>)> {
        Ok((self.listeners.inherit()?, self.tokens.clone()))
    }
}
