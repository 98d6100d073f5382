//! The way to a dispatcher: a function call (embedded), a ring on this host, or TCP.

pub(crate) mod answers;
pub(crate) mod dial;
pub(crate) mod embedded_connection;
pub(crate) mod greeting;
pub(crate) mod incoming;
pub(crate) mod new_array;
pub(crate) mod payload;
pub(crate) mod ring_connection;
pub(crate) mod ring_inbox;
pub(crate) mod tcp_connection;
pub(crate) mod worker_child;

use answers::Answers;
use gt_protocol::message::FromClient;
use gt_protocol::wire::PAYLOAD_BYTES_MAX;
use gt_protocol::{Id, Instruction, Meta, Op, Operand};
use gt_server::death::LastInstruction;
use gt_transport::Sleeping;
use payload::Payloads;
use rustix::event::epoll;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Receives words from the other side. Threads wait on it without the GIL, one at a time.
pub(crate) trait Inbox: Send {
    /// Takes the words that have arrived: whole messages.
    fn take(&mut self, words: &mut Vec<u32>);
    /// First half of a sleep: from here on the other side wakes a thread that sleeps on
    /// [`sleeping`](Self::sleeping). Returns false when words are there already, or the other side
    /// is known to be gone: do not sleep then.
    fn park(&mut self) -> bool;
    /// Futex word or descriptor to sleep on after [`park`](Self::park).
    fn sleeping(&self) -> Sleeping<'_>;
    /// Second half of a sleep.
    fn unpark(&mut self);
    /// Reason why the other side is gone, if it is.
    fn closed(&mut self) -> Option<String>;
    /// Instruction that the other side was at when it was last heard of; none where that is
    /// unknown.
    fn last_instruction(&self) -> Option<LastInstruction> {
        None
    }
}

/// An epoll instance that reports the end of workers' processes, and of the connection.
#[derive(Clone)]
pub(crate) struct Deaths(pub Arc<OwnedFd>);

impl Deaths {
    /// Event that reports the end of the connection; the others are workers' indices.
    pub(crate) const END: u64 = u64::MAX;

    /// Waits for an event; `None` where none will come any more.
    pub(crate) fn wait(&self) -> Option<u64> {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 1];
        // The loop ends with an event; an interrupt is none.
        loop {
            match epoll::wait(&self.0, &mut events, None) {
                Ok((ready, _)) => return ready.first().map(|event| event.data.u64()),
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

pub(crate) type SharedInbox = Arc<Mutex<dyn Inbox>>;

/// A connection to a dispatcher. All methods are called with the GIL held and do not wait.
pub(crate) trait Connection: Send {
    /// Returns true if one more instruction certainly fits.
    fn has_room(&mut self) -> bool;
    /// Returns true if there is enough room again, after there was none, for the client to go on.
    /// Room for a single instruction would make it wait again after each.
    fn has_ample_room(&mut self) -> bool;
    /// Returns true if an instruction that only the dispatcher answers fits.
    fn has_dispatcher_room(&mut self) -> bool {
        self.has_room()
    }
    /// Returns true if the process numbers that the dispatcher reports are processes of this host.
    fn is_on_this_host(&self) -> bool {
        false
    }
    /// Message about this connection for the user, returned once. Called at every read, and after
    /// the connection's end.
    fn take_notice(&mut self) -> Option<String> {
        None
    }
    /// Progress of the workers that this connection starts; `None` once all are ready.
    fn start(&self) -> Option<String> {
        None
    }
    /// Sends an instruction.
    ///
    /// # Errors
    /// The text of a breach of the protocol: a bug of ours.
    fn send(&mut self, instruction: &Instruction<'_>, answers: &mut Answers) -> Result<(), String>;
    /// Sends an encoded instruction, whose results have this metadata; its words may be written to.
    fn send_words(
        &mut self,
        op: Op,
        words: &mut [u32],
        outputs: &[Meta],
        answers: &mut Answers,
    ) -> Result<(), String>;
    /// Maximum number of bytes of one chunk.
    fn chunk_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }
    /// Payload slab that has no free slot at present, if any; one will become free.
    fn full_payloads(&mut self) -> Option<Payloads> {
        None
    }
    /// Frees slots: with the next instruction, or at [`Connection::flush`].
    fn release(&mut self, slots: &[u32], answers: &mut Answers) -> Result<(), String> {
        let mut word = Instruction::new(Op::Free);
        word.operands.extend(slots.iter().map(|&slot| Operand::Value(Id::slot(slot))));
        self.send(&word, answers)
    }
    /// Sends the frees that wait for the next instruction, and as much of the backlog as fits.
    fn flush(&mut self) {}
    /// Returns true while words wait for room in a ring.
    fn has_backlog(&self) -> bool {
        false
    }
    /// Prepares to wait for the workers: wakes those that nap. Returns true where a worker shares
    /// the caller's CPU, so that polling would keep it from running.
    fn begin_wait(&mut self) -> bool {
        false
    }
    /// Sends a message that is not an instruction.
    fn say(&mut self, message: &FromClient<'_>, answers: &mut Answers);
    /// Cancels what this connection sent before and what has not begun.
    fn cancel(&mut self, answers: &mut Answers) {
        self.say(&FromClient::Cancel, answers);
    }
    /// The inboxes to watch, with an index for [`Connection::receive`].
    fn inboxes(&self) -> Vec<SharedInbox>;
    /// Words that came from inbox `index`.
    fn receive(&mut self, index: usize, words: &[u32], answers: &mut Answers);
    /// Handles the loss of the other end of inbox `index`.
    fn lost(&mut self, index: usize, reason: &str, answers: &mut Answers);
    /// Tells of the deaths of workers that this connection has started; `None` where it has none.
    fn deaths(&self) -> Option<Deaths> {
        None
    }
    /// Returns true if a worker that this connection has started has ended, and it does not know
    /// that yet.
    fn has_dead_worker(&mut self) -> bool {
        false
    }
    /// The address of a dispatcher that is a process of its own, as `gt.connect` takes it.
    fn address(&self) -> Option<&str> {
        None
    }
    /// One line that tells the user where this connection leads.
    fn describe(&self) -> String;
    /// Counters by name.
    fn counters(&self) -> Vec<(&'static str, u64)>;
    /// Ends the connection and the processes that this connection started.
    fn close(&mut self);
}
