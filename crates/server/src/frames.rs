//! Frames between the core's thread and the task of a peer's socket. With a standby the core's
//! thread keeps what the standby needs to resume the link: how many frames it has taken in, and
//! those that it has sent and the peer has not acknowledged.
//!
//! Not here: sockets, and the numbers in frames, which are the task's.

use gt_protocol::handshake::FRAME_BYTES_MAX;
use gt_protocol::integer::to_u64;
use gt_protocol::link::{UNACKNOWLEDGED_BYTES_MAX, UNACKNOWLEDGED_FRAMES_MAX};
use gt_protocol::wire::cut;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Notify, mpsc};

/// Number of frames in the channel between a socket's task and the core's thread, 1 MiB each at
/// most: enough that neither waits for the other at every frame.
const CHANNEL_FRAMES: usize = 8;
#[allow(clippy::as_conversions, reason = "a constant that fits; TryFrom is not const")]
const FRAME_WORDS: usize = FRAME_BYTES_MAX as usize / 4;

/// Words of a frame to a peer: memory that the task and the core's thread share.
pub(crate) type SentFrame = Arc<[u32]>;

/// Counts of a link, by which the core's thread and the socket's task tell each other.
#[derive(Debug, Default)]
pub(crate) struct FrameCounts {
    /// Number of frames from the peer that the core's thread has taken. Where there is a standby,
    /// only these are acknowledged: it gets the others again.
    pub taken: AtomicU64,
    /// Number of frames to the peer that this has acknowledged.
    pub acknowledged: AtomicU64,
    /// Notified when there may be something to acknowledge, or room to send again.
    pub stir: Notify,
}

/// The core's thread's end of the frames from a peer.
#[derive(Debug)]
pub(crate) struct FrameSource {
    receiver: mpsc::Receiver<Vec<u32>>,
    /// Counts, if there may be a standby.
    counts: Option<Arc<FrameCounts>>,
    /// Number of frames that were taken, and of these and their bytes since the task was told.
    taken: u64,
    untold: u64,
    untold_bytes: usize,
}

/// The core's thread's end of the frames to a peer.
#[derive(Debug)]
pub(crate) struct FrameTarget {
    sender: mpsc::Sender<SentFrame>,
    kept: Option<KeptFrames>,
}

/// Frames for a standby.
#[derive(Debug)]
struct KeptFrames {
    counts: Arc<FrameCounts>,
    /// Number of frames that were sent; the last of them are kept.
    sent: u64,
    frames: VecDeque<SentFrame>,
}

/// The task's ends.
#[derive(Debug)]
pub(crate) struct TaskChannels {
    pub inward: mpsc::Sender<Vec<u32>>,
    pub outward: mpsc::Receiver<SentFrame>,
    pub counts: Arc<FrameCounts>,
}

/// State of a link that is to be resumed, and its task's ends.
#[derive(Debug)]
pub(crate) struct ResumedFrames {
    pub channels: TaskChannels,
    /// Number of frames that were received, and that were sent.
    pub received: u64,
    pub sent: u64,
    /// The last of the sent ones, which may not have arrived.
    pub kept: Vec<SentFrame>,
}

/// Channels of a new link. `is_kept`: there may be a standby.
pub(crate) fn channels(is_kept: bool) -> (FrameSource, FrameTarget, TaskChannels) {
    let (inward, receiver) = mpsc::channel(CHANNEL_FRAMES);
    let (sender, outward) = mpsc::channel(CHANNEL_FRAMES);
    let counts = Arc::new(FrameCounts::default());
    let shared = is_kept.then(|| Arc::clone(&counts));
    let kept = shared.clone().map(|counts| KeptFrames { counts, sent: 0, frames: VecDeque::new() });
    let source = FrameSource { receiver, counts: shared, taken: 0, untold: 0, untold_bytes: 0 };
    (source, FrameTarget { sender, kept }, TaskChannels { inward, outward, counts })
}

/// New channels of a link that the process before this one had, whose task is gone. The ends of
/// before are not dropped: another thread may have held a lock of theirs at the fork.
pub(crate) fn renew(source: &mut FrameSource, target: &mut FrameTarget) -> ResumedFrames {
    let (mut new_source, mut new_target, channels) = channels(true);
    new_source.taken = source.taken;
    channels.counts.taken.store(source.taken, Ordering::Relaxed);
    let mut kept = Vec::new();
    let mut sent = 0;
    if let (Some(new), Some(old)) = (&mut new_target.kept, &target.kept) {
        sent = old.sent;
        kept.extend(old.frames.iter().cloned());
        new.sent = sent;
        new.frames.extend(kept.iter().cloned());
        let acknowledged = sent.saturating_sub(to_u64(kept.len()));
        channels.counts.acknowledged.store(acknowledged, Ordering::Relaxed);
    }
    std::mem::forget(std::mem::replace(source, new_source));
    std::mem::forget(std::mem::replace(target, new_target));
    ResumedFrames { received: source.taken, sent, kept, channels }
}

impl FrameSource {
    /// Takes the next frame, which `note` writes down before it is acknowledged.
    pub fn take(&mut self, note: impl FnOnce(&[u32])) -> Option<Vec<u32>> {
        let words = self.receiver.try_recv().ok()?;
        note(&words);
        self.taken += 1;
        if let Some(counts) = &self.counts {
            counts.taken.store(self.taken, Ordering::Release);
            self.untold += 1;
            self.untold_bytes += words.len() * 4;
            if self.untold >= UNACKNOWLEDGED_FRAMES_MAX
                || self.untold_bytes >= UNACKNOWLEDGED_BYTES_MAX
            {
                (self.untold, self.untold_bytes) = (0, 0);
                counts.stir.notify_one();
            }
        }
        Some(words)
    }

    /// Counts a frame that the process before this one has taken.
    pub fn replay(&mut self) {
        self.taken += 1;
    }

    /// Takes nothing more. The channel is not dropped: another thread may have held its lock at the
    /// fork.
    pub fn give_up(&mut self) {
        std::mem::forget(std::mem::replace(self, channels(false).0));
    }

    /// Returns true if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }
}

impl FrameTarget {
    /// Sends the first frame of whole messages, if there is room, once `note` has written it down;
    /// returns the number of words.
    pub fn send(&mut self, waiting: &[u32], note: impl FnOnce(&[u32])) -> usize {
        let words = waiting.get(..cut::whole(waiting, FRAME_WORDS)).unwrap_or_default();
        if words.is_empty() {
            return 0;
        }
        let Ok(permit) = self.sender.try_reserve() else { return 0 };
        let frame = SentFrame::from(words);
        if let Some(kept) = &mut self.kept {
            note(words);
            kept.forget_acknowledged();
            kept.keep(&frame);
        }
        permit.send(frame);
        words.len()
    }

    /// Keeps a frame again that the process before this one has sent.
    pub fn replay(&mut self, words: &[u32]) {
        if let Some(kept) = &mut self.kept {
            kept.keep(&SentFrame::from(words));
        }
    }

    /// Gives up what the peer has acknowledged.
    pub fn forget_acknowledged(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.forget_acknowledged();
        }
    }

    /// Number of frames for which there is room.
    pub fn capacity(&self) -> usize {
        self.sender.capacity()
    }

    /// Returns true if the task is gone.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl KeptFrames {
    fn keep(&mut self, frame: &SentFrame) {
        self.sent += 1;
        self.frames.push_back(Arc::clone(frame));
    }

    fn forget_acknowledged(&mut self) {
        let acknowledged = self.counts.acknowledged.load(Ordering::Acquire);
        let unknown = usize::try_from(self.sent.saturating_sub(acknowledged)).unwrap_or(usize::MAX);
        let excess = self.frames.len().saturating_sub(unknown);
        self.frames.drain(..excess);
    }
}
