//! Communication of GT's processes: on one host by a ring of 32-bit words in shared memory,
//! descriptors over a Unix socket, and the few scheduler calls that make a woken process start at
//! once; between hosts by TCP connections of workers.
//!
//! The map:
//! - [`ring`]: [`create`] a sealed memfd, then one [`Producer`] and one [`Consumer`] attach to it.
//! - [`slab`]: slots of bytes that one side fills and the other reads in place: tensors.
//! - [`sleep`]: until any of several rings, slabs and threads has something.
//! - [`descriptors`]: send and receive bytes with file descriptors; see whether a peer is gone.
//! - [`calls`]: workers of different hosts meet over TCP.
//! - [`tcp`]: options of a connection between hosts.
//! - [`host_stream`]: such a connection, in clear or encrypted; [`authority`]: by whom its other end is known.
//! - [`packing`]: fewer bytes on a slow link.
//! - [`memory`]: large pages for large blocks, and copying past the caches.
//! - [`process`]: state of another process: stopped or not, and its processor time.
//! - [`scheduling`]: short time slice, timer slack, death with the parent, yield.
//! - [`vectors`]: the widest vector instructions that the processor has.
//! - [`shared_cpu`]: moving a worker away from its client's CPU.
//!
//! **Architecture invariant:** no word has a meaning in here. This crate does not know what an
//! instruction, a batch or a session is, and starts no thread. Besides `python` it is the only Rust
//! crate with `unsafe`.
//!
//! A peer may be hostile: descriptors are checked before they are mapped, counters in shared memory
//! are checked at every read, each word is copied out once, and the reader of the words checks them.

#![deny(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "bytes from outside are read here, and none of them may end the process"
)]
#![deny(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("gt-transport needs memfd, futex and eventfd: Linux only");
#[cfg(not(target_endian = "little"))]
compile_error!("gt-transport packs bytes into words in little-endian order, as its peers do");

pub mod authority;
pub mod calls;
pub mod control;
pub mod descriptors;
pub mod host_stream;
pub mod memory;
pub mod packing;
pub mod process;
pub mod ring;
pub mod scheduling;
pub mod shared_cpu;
pub mod slab;
pub mod sleep;
pub mod tcp;
pub mod vectors;

pub use authority::{Authority, AuthorityError};
pub use control::{ControlKind, ControlRecord, SLABS, receive_record, send_record};
pub use descriptors::{
    DescriptorError, FDS_MAX, drain_eventfd, eventfd, peer_closed, receive_with_fds, send_with_fds,
    socket_pair,
};
pub use host_stream::HostStream;
pub use process::{ProcessState, process_state};
pub use ring::{CAPACITY_WORDS_MAX, CAPACITY_WORDS_MIN, Consumer, Producer, RingError, create};
pub use scheduling::{
    die_with_parent, move_to_cpu, poll_until, set_short_slice, set_timer_slack_1us, yield_now,
};
pub use shared_cpu::{IdleTimes, SharedCpu};
pub use slab::{CHUNK_BYTES_MAX, Chunk, HEAD_WORDS, SlabReader, SlabWriter};
pub use sleep::{FutexWaker, Parked, Sleeping, WAIT_MAX, sleep_on_any};
