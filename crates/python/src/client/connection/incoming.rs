//! Messages from a dispatcher process, passed to the answers one by one.

use super::answers::Answers;
use gt_protocol::message::{self, ToClient};
use gt_transport::SlabReader;

/// Hands every message among `words` to the answers.
pub(crate) fn take_messages(
    words: &[u32],
    answers: &mut Answers,
    mut chunks: Option<&mut SlabReader>,
) {
    let mut rest = words;
    while !rest.is_empty() {
        let mut is_beside = false;
        let decoded = message::decode_with::<ToClient<'_>>(rest, || {
            is_beside = true;
            let slab = chunks.as_deref_mut()?;
            slab.refresh();
            Some(slab.front()?.bytes)
        });
        match decoded {
            Ok((message, used)) => {
                answers.receive(&message);
                rest = rest.get(used..).unwrap_or_default();
            }
            Err(error) => {
                answers.closed = Some(format!("the dispatcher sent what is no message: {error}"));
                return;
            }
        }
        if let Some(slab) = chunks.as_deref_mut().filter(|_| is_beside) {
            slab.release();
        }
    }
}
