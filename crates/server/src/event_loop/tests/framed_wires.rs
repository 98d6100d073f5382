//! A peer by frames, and the task of its socket, without a socket.

use crate::frames::{self, ResumedFrames, TaskChannels};
use crate::link::{
    InheritedConnection, InheritedPeer, PeerLink, Resumption, WordSource, WordTarget,
};
use gt_protocol::handshake::{Capabilities, Secret};
use gt_protocol::integer::to_u64;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// Its numbers, and the channels of its task; the first are those in use.
#[derive(Default)]
pub(super) struct FramedWires {
    tasks: RefCell<VecDeque<TaskChannels>>,
    /// Frames that may be sent again, with their numbers.
    kept: VecDeque<(u64, Vec<u32>)>,
    sent: u64,
    /// The last one that was put into the channel.
    handed: u64,
    received: u64,
}

/// Whatever a standby would have of it besides.
pub(super) fn inherited() -> InheritedPeer {
    let secret = Secret([0; 16]);
    let resumption = Resumption { secret, capabilities: Capabilities::default(), data: None };
    InheritedPeer { connection: InheritedConnection::Frames(resumption), line: None }
}

impl FramedWires {
    /// The dispatcher's ends, of one process after the other.
    pub fn link(&self) -> PeerLink {
        let (source, target, task) = frames::channels(true);
        self.tasks.borrow_mut().push_back(task);
        PeerLink {
            source: WordSource::Socket(source),
            target: WordTarget::Socket(target),
            cancel: oneshot::channel().0,
            slab: None,
            slab_down: None,
            process: None,
            inherited: None,
        }
    }

    pub fn send(&mut self, words: &[u32]) {
        self.sent += 1;
        self.kept.push_back((self.sent, words.to_vec()));
        self.hand_on();
    }

    /// Puts frames into the channel, and drops those that are acknowledged.
    fn hand_on(&mut self) {
        let tasks = self.tasks.borrow();
        let task = tasks.front().expect("a link was made");
        let taken = task.counts.taken.load(Ordering::Acquire);
        self.kept.retain(|(number, _)| *number > taken);
        for (number, words) in &self.kept {
            if *number == self.handed + 1 && task.inward.try_send(words.clone()).is_ok() {
                self.handed += 1;
            }
        }
    }

    /// Words of the next frame that has arrived, if one has.
    pub fn receive(&mut self) -> Option<Vec<u32>> {
        self.hand_on();
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.front_mut().expect("a link was made");
        let words = task.outward.try_recv().ok()?.to_vec();
        self.received += 1;
        // Not at each: an acknowledgement comes late.
        if self.received.is_multiple_of(3) {
            task.counts.acknowledged.store(self.received, Ordering::Release);
        }
        Some(words)
    }

    /// Goes on with a standby, over a new connection; returns the words that arrive at once.
    pub fn resume(&mut self, frames: ResumedFrames) -> Vec<u32> {
        let ResumedFrames { channels, received, sent, kept } = frames;
        let first_kept = self.kept.front().map_or(self.sent + 1, |frame| frame.0);
        assert!(first_kept <= received + 1, "frame {first_kept} is kept, {received} arrived");
        assert!(received <= self.sent && self.received <= sent, "{received}, {sent}");
        self.handed = received;
        self.tasks.borrow_mut().clear();
        self.tasks.borrow_mut().push_back(channels);
        let mut words = Vec::new();
        for (number, frame) in (sent - to_u64(kept.len()) + 1..).zip(kept) {
            assert!(number <= self.received + 1, "frame {number} after {}", self.received);
            if number > self.received {
                self.received = number;
                words.extend_from_slice(&frame);
            }
        }
        assert_eq!(self.received, sent, "all that was sent is there");
        words
    }
}
