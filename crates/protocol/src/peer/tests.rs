//! Round trips of the messages between workers, and bytes from a malicious peer.

use super::*;
use crate::message::{Failure, FailureClass};
use proptest::prelude::*;

fn handle() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..=HANDLE_BYTES_MAX)
}

fn buffer(parts: Option<&(Vec<u8>, u64, u64)>) -> Option<DeviceBuffer<'_>> {
    parts.map(|(name, start, length)| DeviceBuffer { name, start: *start, length: *length })
}

fn rows([start, rows, run, stride]: [u64; 4]) -> ByteRows {
    ByteRows { start, rows, run, stride }
}

proptest! {
    #[test]
    fn heads_of_chunks_read_back(tag: u64, hop: u32, is_failure: bool, total: u64) {
        let kind = if is_failure { ChunkKind::Failure } else { ChunkKind::Bytes };
        let head = ChunkHead { tag, hop, kind, total };
        prop_assert_eq!(ChunkHead::decode(&head.encode()), Ok(head));
    }

    #[test]
    fn first_payloads_read_back(
        operand: [u64; 4],
        result: [u64; 4],
        of_backend in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let (operand, result) = (rows(operand), rows(result));
        let payload = FirstPayload { operand, result, of_backend: &of_backend };
        let bytes = payload.encode().unwrap();
        prop_assert_eq!(FirstPayload::decode(&bytes), Ok(payload));
    }

    #[test]
    fn payloads_of_devices_read_back(
        process: [u8; 16],
        knows_all: bool,
        event in handle(),
        operand in prop::option::of((handle(), any::<u64>(), any::<u64>())),
        result in prop::option::of((handle(), any::<u64>(), any::<u64>())),
        errors in prop::option::of((handle(), any::<u64>(), any::<u64>())),
        region in prop::option::of((handle(), any::<u64>(), any::<u64>())),
        group: [u8; 16],
    ) {
        let [operand, result, errors, region] =
            [&operand, &result, &errors, &region].map(|parts| buffer(parts.as_ref()));
        let kernel = region.map(|region| KernelOffer { group, region });
        let event = event.as_slice();
        let buffers =
            DeviceBuffers { process, knows_all, event, operand, result, errors, kernel };
        for payload in [
            DevicePayload::Buffers(buffers),
            DevicePayload::Trial(knows_all),
            DevicePayload::Event(event),
        ] {
            let bytes = payload.encode().unwrap();
            prop_assert_eq!(DevicePayload::decode(&bytes), Ok(payload));
            prop_assert!(DevicePayload::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn payloads_of_groups_read_back(
        digest: [u8; 16],
        nonce: [u8; 8],
        entries in prop::collection::vec(("\\PC{0,12}", prop::collection::vec(any::<u8>(), 0..40)), 0..12),
    ) {
        let entries = entries.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
        let payload = GroupPayload { digest, nonce, entries };
        let bytes = payload.encode().unwrap();
        prop_assert_eq!(GroupPayload::decode(&bytes), Ok(payload));
    }

    #[test]
    fn failures_of_buckets_read_back(
        failures in prop::collection::vec((any::<u32>(), any::<u32>(), "\\PC{0,40}"), 0..6),
    ) {
        let failure = |session: u32, text| Failure {
            session,
            number: 7,
            class: FailureClass::Runtime,
            op: None,
            tag: 7,
            text,
        };
        let entries = failures.iter().map(|(index, session, text)| (*index, failure(*session, text)));
        let bytes = Failures::encode(entries).unwrap();
        prop_assert_eq!(Failures::length(*bytes.first_chunk().unwrap()), Ok(bytes.len()));
        let decoded = Failures::decode(&bytes).unwrap();
        let entries: Vec<_> = failures
            .iter()
            .map(|(index, session, text)| (usize::try_from(*index).unwrap(), failure(*session, text)))
            .collect();
        prop_assert_eq!(decoded.read().unwrap(), entries);
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = FirstPayload::decode(&bytes);
        let _ = DevicePayload::decode(&bytes);
        let _ = GroupPayload::decode(&bytes);
        if let Ok(failures) = Failures::decode(&bytes) {
            let _ = failures.read();
        }
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let long = vec![0; HANDLE_BYTES_MAX + 1];
    assert!(DevicePayload::Event(&long).encode().is_err());
    let entries = vec![("key", &[][..]); GROUP_ENTRIES_MAX + 1];
    let payload = GroupPayload { digest: [0; 16], nonce: [0; 8], entries };
    assert!(payload.encode().is_err());
    assert!(Failures::length((1_u64 << 40).to_le_bytes()).is_err());
    assert!(Failures::length(4_u64.to_le_bytes()).is_err());
}
