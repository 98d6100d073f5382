//! Connections that have not said who they are: their number is limited, and the oldest go first,
//! so that whoever speaks at once is heard however many are silent.

use super::greeting::GreetingError;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Maximum number of connections without a hello: some hundred descriptors, each for three seconds
/// at most. Whoever speaks at once needs a place for a few milliseconds.
const STRANGERS_MAX: usize = 256;
/// Time between two log lines about strangers that had to go.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// All connections without a hello, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    places: RefCell<VecDeque<(u64, oneshot::Sender<()>)>>,
    next: Cell<u64>,
    /// Number of those that had to go since the last line about them, and its time.
    gone: Cell<u64>,
    told: Cell<Option<Instant>>,
}

/// Claim of a connection to a place among those without a hello; given up when it is dropped.
pub(crate) struct StrangerPlace {
    number: u64,
    taken: oneshot::Receiver<()>,
    strangers: Rc<Strangers>,
}

impl Strangers {
    /// A place for a new connection, if need be that of the oldest.
    pub fn admit(self: &Rc<Self>) -> StrangerPlace {
        let (sender, taken) = oneshot::channel();
        let number = self.next.get();
        self.next.set(number + 1);
        let mut places = self.places.borrow_mut();
        if places.len() >= STRANGERS_MAX {
            // The dropped sender ends the oldest.
            places.pop_front();
            self.count();
        }
        places.push_back((number, sender));
        drop(places);
        StrangerPlace { number, taken, strangers: Rc::clone(self) }
    }

    fn count(&self) {
        self.gone.set(self.gone.get() + 1);
        if self.told.get().is_none_or(|told| told.elapsed() >= LOG_INTERVAL) {
            let (gone, seconds) = (self.gone.replace(0), LOG_INTERVAL.as_secs());
            self.told.set(Some(Instant::now()));
            tracing::warn!(
                "{STRANGERS_MAX} connections have sent no hello; {gone} of the oldest were closed (said every {seconds} s at most)"
            );
        }
    }
}

impl StrangerPlace {
    /// Runs a greeting for as long as the place is not needed for a newer connection.
    pub async fn during<T>(
        &mut self,
        greeting: impl Future<Output = Result<T, GreetingError>>,
    ) -> Result<T, GreetingError> {
        tokio::select! {
            greeted = greeting => greeted,
            _ = &mut self.taken => Err(GreetingError::Crowded),
        }
    }
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        self.strangers.places.borrow_mut().retain(|(number, _)| *number != self.number);
    }
}
