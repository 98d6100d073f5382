//! The thread that watches the policy file.

use crate::audit::AuditLog;
use crate::net_event::NetEvent;
use crate::policy::{self, PolicyFile};
use crate::waker::Waker;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tokio::sync::mpsc;

/// Starts the thread that passes on each changed policy; it ends with the returned sender.
pub(crate) fn watch_policy(
    file: PolicyFile,
    events: &mpsc::UnboundedSender<NetEvent>,
    waker: &Arc<Waker>,
    audit: AuditLog,
) -> io::Result<Sender<()>> {
    let (stop, stopped) = std::sync::mpsc::channel();
    let (events, waker) = (events.clone(), Arc::clone(waker));
    let tell = move |policy| {
        audit.write("policy-reloaded", format_args!(""));
        // Refused only when the core's thread has ended.
        let _ = events.send(NetEvent::Policy(policy));
        waker.wake();
    };
    std::thread::Builder::new()
        .name("gt-policy".into())
        .spawn(move || policy::watch(file, &stopped, tell))?;
    Ok(stop)
}
