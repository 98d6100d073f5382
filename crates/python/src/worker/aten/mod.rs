//! Instructions that run without Python: `ATen`'s operators through a helper compiled against the
//! installed torch (`gt/worker/aten`). That package decides which rows run so, and how.

mod abi;
mod programs;
mod value;

pub use programs::{JoinedSteps, ProgramCall, Programs, offer_aten, take_offer};
pub use value::{TensorValue, described};
