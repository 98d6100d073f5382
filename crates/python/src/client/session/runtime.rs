//! The client's single state and the operations on it: preparing and sending instructions, waiting
//! for answers, replacing connections. Files import only those before them in this order: `ending`,
//! `fork`, `state`, `held`, `cancel`, `deaths`, `patience`, `prepare`, `silence`, `wait`, `replace`.

mod cancel;
mod deaths;
mod ending;
mod fork;
mod held;
mod patience;
mod prepare;
mod replace;
mod silence;
mod state;
mod wait;

pub(crate) use cancel::cancel;
pub(crate) use deaths::watch_deaths;
pub(crate) use ending::hold_other_threads;
pub(crate) use patience::WORKER_WAIT;
pub(crate) use prepare::{prepare, prepare_for, prepare_payload, set_opener};
pub(crate) use replace::{
    begin_new_child, disconnect, end_with_program, install, is_new_child, leave_parent, whose,
};
pub(crate) use silence::Question;
pub(crate) use state::{
    Caller, ResultSlots, Runtime, chunk_bytes_max, epoch, has_begun, release, unread, with,
};
pub(crate) use wait::wait;
