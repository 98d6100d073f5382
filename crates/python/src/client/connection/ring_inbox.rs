//! An inbox that a ring fills: of a worker, or of a dispatcher process on this host.

use super::{Inbox, SharedInbox};
use gt_server::death::LastInstruction;
use gt_transport::{Consumer, Sleeping, peer_closed};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// Reason of a ring's end that is its peer's.
pub(crate) const PROCESS_ENDED: &str = "its process ended";

/// The inbox of a ring whose other end lives as long as the socket `control`.
pub(crate) fn ring_inbox(consumer: Consumer, control: Arc<OwnedFd>) -> SharedInbox {
    Arc::new(Mutex::new(RingInbox { consumer, control }))
}

struct RingInbox {
    consumer: Consumer,
    control: Arc<OwnedFd>,
}

impl Inbox for RingInbox {
    fn take(&mut self, words: &mut Vec<u32>) {
        self.consumer.read(words, usize::MAX);
    }

    fn park(&mut self) -> bool {
        self.consumer.park_on_futex()
    }

    fn sleeping(&self) -> Sleeping<'_> {
        self.consumer.sleeping()
    }

    fn unpark(&mut self) {
        self.consumer.park_end();
    }

    fn closed(&mut self) -> Option<String> {
        if self.consumer.is_corrupt() {
            return Some("its ring is corrupt".to_owned());
        }
        peer_closed(self.control.as_fd()).then(|| PROCESS_ENDED.to_owned())
    }

    fn last_instruction(&self) -> Option<LastInstruction> {
        LastInstruction::of_mark(self.consumer.mark())
    }
}
