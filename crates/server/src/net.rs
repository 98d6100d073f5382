//! The sockets' thread: listeners, handshakes, lifelines, frames. It never touches the core.

#![deny(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "bytes from outside are read here, and none of them may end the process"
)]

mod authentication;
mod framed;
mod greeting;
mod heirloom;
mod inheritance;
mod input;
mod introductions;
mod listeners;
mod peer_socket;
mod registry;
mod ring_peer;
mod secret;
mod secure;
mod strangers;
mod tcp_peer;

pub(crate) use heirloom::Heirloom;
pub(crate) use inheritance::ResumedPeer;
pub use listeners::ListenError;
pub(crate) use listeners::{Listeners, bind};

use crate::audit::AuditLog;
use crate::net_event::NetEvent;
use crate::options::ServerOptions;
use crate::tokens::TokenList;
use crate::waker::Waker;
use authentication::Authentication;
use gt_dispatcher::WorkerIndex;
use gt_transport::signals;
use gt_transport::tcp::LinkLimits;
use registry::Registry;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

/// Time limit for connections to close when the dispatcher stops.
const CLOSING: Duration = Duration::from_secs(1);

/// State that all tasks of the sockets' thread share.
pub(crate) struct Net {
    events: mpsc::UnboundedSender<NetEvent>,
    waker: Arc<Waker>,
    /// Admits peers by their tokens, if there is a token file.
    authentication: Option<Rc<Authentication>>,
    /// Encrypts the connections of TCP.
    tls: Option<TlsAcceptor>,
    audit: AuditLog,
    links: LinkLimits,
    /// True if the core's thread may have a standby, which needs copies of descriptors.
    has_standby: bool,
    registry: RefCell<Registry>,
    /// The abstract address of the local socket.
    local_socket: Vec<u8>,
    /// Each connection's task holds a copy; when all are gone, the thread may end.
    open: mpsc::Sender<()>,
}

impl Net {
    /// Sends an event to the core's thread, and wakes it; returns false if that has ended, and the
    /// process is ending too.
    pub fn tell(&self, event: NetEvent) -> bool {
        let is_sent = self.events.send(event).is_ok();
        self.waker.wake();
        is_sent
    }
}

/// Parameters of the sockets' thread.
pub(crate) struct Start {
    pub listeners: Listeners,
    /// The token file and its contents.
    pub tokens: Option<(PathBuf, TokenList)>,
    pub tls: Option<TlsAcceptor>,
    pub audit: AuditLog,
    pub events: mpsc::UnboundedSender<NetEvent>,
    pub waker: Arc<Waker>,
    /// Resolves when the core's thread ends.
    pub core_ended: oneshot::Receiver<()>,
    /// Peers of the dispatcher before this one, whose standby this process was.
    pub peers: Vec<ResumedPeer>,
    /// Last incarnations of workers by index, and the one that a new index begins with.
    pub incarnations: (BTreeMap<WorkerIndex, u32>, u32),
    /// Number of the process before this one, if this one was its standby: the addresses have been
    /// printed then.
    pub before: Option<i32>,
}

/// Serves until a signal arrives or the core's thread ends.
pub(crate) fn serve(start: Start, options: &ServerOptions) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    let served = local.block_on(&runtime, serve_all(start, options));
    // Tasks that did not end in time are dropped here.
    drop(local);
    served
}

async fn serve_all(start: Start, options: &ServerOptions) -> std::io::Result<()> {
    let Start { listeners, tokens, tls, audit, events, waker, mut core_ended, .. } = start;
    let Start { peers, incarnations, before, .. } = start;
    let (open, mut all_closed) = mpsc::channel(1);
    let registry = RefCell::new(Registry::restored(incarnations));
    let local_socket = listeners.local_address.clone();
    let links = options.links;
    let has_standby = options.standby;
    let is_first = before.is_none();
    let authentication =
        tokens.map(|(path, list)| Authentication::new(path, list, audit.clone(), is_first));
    let authentication = authentication.transpose()?;
    let authentication = authentication.map(Rc::new);
    let net = Rc::new(Net {
        events,
        waker,
        authentication,
        tls,
        audit,
        links,
        has_standby,
        registry,
        local_socket,
        open,
    });
    let (end_signals, asked_to_end) = signals::listen()?;
    let asked_to_end = UnixStream::from_std(asked_to_end)?;
    for peer in peers {
        inheritance::resume(&net, peer)?;
    }
    let mut accepting = listeners.accept_all(&net)?;
    if let Some(authentication) = &net.authentication {
        let watching = authentication::watch(Rc::clone(authentication), Rc::clone(&net));
        accepting.push(tokio::task::spawn_local(watching));
    }
    if is_first {
        listeners::announce(&listeners, options)?;
    }
    let is_encrypted = net.tls.is_some();
    match before {
        None => net.audit.write("started", format_args!(" tls={is_encrypted}")),
        Some(before) => net.audit.write("taken-over", format_args!(" from-process={before}")),
    }
    tokio::select! {
        _ = asked_to_end.readable() => {
            let is_interrupt = end_signals.is_interrupt();
            let word = if is_interrupt { "interrupted" } else { "terminated" };
            tracing::info!("{word}: stopping");
        }
        () = input::end_of_input(options.ends_with_input) => {
            tracing::info!("its input has ended: stopping");
        }
        _ = &mut core_ended => tracing::error!("the core's thread has ended"),
    }
    for task in accepting {
        task.abort();
    }
    net.audit.write("stopping", format_args!(""));
    net.tell(NetEvent::Stop);
    // Its end drops all links, and with them their cancel tokens.
    let _ = core_ended.await;
    drop(net);
    let _ = tokio::time::timeout(CLOSING, all_closed.recv()).await;
    Ok(())
}
