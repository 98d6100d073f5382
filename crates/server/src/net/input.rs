//! The end of standard input, by which a dispatcher ends with the program that started it.

use rustix::io::Errno;
use std::future::pending;
use std::thread::Builder;
use tokio::sync::oneshot;

/// Returns when standard input has ended; never if it is not watched.
pub(super) async fn end_of_input(is_watched: bool) {
    if !is_watched {
        return pending().await;
    }
    let (tell, told) = oneshot::channel();
    // A thread, since not every kind of input can be polled. It ends with the process; a standby that
    // goes on has one of its own.
    let reading = Builder::new().name("gt-input".into()).spawn(move || {
        read_to_end();
        // Refused when the dispatcher ends already.
        let _: Result<(), ()> = tell.send(());
    });
    if let Err(error) = reading {
        tracing::warn!("standard input cannot be watched: {error}");
        return pending().await;
    }
    // The sender is dropped without a message only by a thread that panicked.
    let _ = told.await;
}

fn read_to_end() {
    let mut bytes = [0; 256];
    // The loop ends with the input: only signals interrupt it.
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            Ok(0) => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
