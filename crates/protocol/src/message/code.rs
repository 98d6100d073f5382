//! The codes of messages, as in `docs/wire.md`. A code is never reused.

use crate::wire::MESSAGE_CODE_FIRST;

pub const REPLY: u16 = MESSAGE_CODE_FIRST | 1;
pub const DONE: u16 = MESSAGE_CODE_FIRST | 2;
pub const FAILURE: u16 = MESSAGE_CODE_FIRST | 3;
pub const FAILED_REPLY: u16 = MESSAGE_CODE_FIRST | 4;
pub const STATS_REQUEST: u16 = MESSAGE_CODE_FIRST | 5;
pub const STATS: u16 = MESSAGE_CODE_FIRST | 6;
pub const WORKER_STATS: u16 = MESSAGE_CODE_FIRST | 0xf;
pub const WORKER_JOINED: u16 = MESSAGE_CODE_FIRST | 7;
pub const WORKER_LEFT: u16 = MESSAGE_CODE_FIRST | 8;
pub const GOODBYE: u16 = MESSAGE_CODE_FIRST | 9;
pub const PEER: u16 = MESSAGE_CODE_FIRST | 0xa;
pub const DESCRIPTION: u16 = MESSAGE_CODE_FIRST | 0xb;
pub const BACKENDS: u16 = MESSAGE_CODE_FIRST | 0xc;
pub const SPACED_REPLY: u16 = MESSAGE_CODE_FIRST | 0xd;
pub const SLAB_REPLY: u16 = MESSAGE_CODE_FIRST | 0xe;
pub const MARK: u16 = MESSAGE_CODE_FIRST | 0x10;
pub const SESSIONS: u16 = MESSAGE_CODE_FIRST | 0x11;
pub const CANCEL: u16 = MESSAGE_CODE_FIRST | 0x12;
pub const LOSSES_REQUEST: u16 = MESSAGE_CODE_FIRST | 0x20;
pub const LOSSES: u16 = MESSAGE_CODE_FIRST | 0x21;

const NAMES: [(u16, &str); 20] = [
    (REPLY, "reply"),
    (DONE, "done"),
    (FAILURE, "failure"),
    (FAILED_REPLY, "failed_reply"),
    (STATS_REQUEST, "stats_request"),
    (STATS, "stats"),
    (WORKER_STATS, "worker_stats"),
    (WORKER_JOINED, "worker_joined"),
    (WORKER_LEFT, "worker_left"),
    (GOODBYE, "goodbye"),
    (PEER, "peer"),
    (DESCRIPTION, "description"),
    (BACKENDS, "backends"),
    (SPACED_REPLY, "spaced_reply"),
    (SLAB_REPLY, "slab_reply"),
    (MARK, "mark"),
    (SESSIONS, "sessions"),
    (CANCEL, "cancel"),
    (LOSSES_REQUEST, "losses_request"),
    (LOSSES, "losses"),
];

/// The name of a message's code; `None` if no message has it.
pub fn name_of(code: u16) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// The name of a code that this build writes.
pub fn own_name(code: u16) -> &'static str {
    let Some(name) = name_of(code) else { unreachable!("no message has the code {code:#x}") };
    name
}
