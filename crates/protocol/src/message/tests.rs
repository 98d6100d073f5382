//! Round trips of every message, and words from a peer that means harm.

use super::*;
use crate::arbitrary::{any_row, changes, dtype, mutate, text};
use crate::handshake::Secret;
use crate::{Dims, Dtype};
use proptest::prelude::*;

fn words(message: &Message<'_>) -> Vec<u32> {
    let mut out = Vec::new();
    encode(message, &mut out).unwrap();
    out
}

/// A message of every kind from the same ingredients.
fn every_message<'a>(
    numbers: [u64; 5],
    failure: Failure<'a>,
    dtype: Dtype,
    bytes: &'a [u8],
) -> Vec<Message<'a>> {
    let [request, values, counted, bytes_peak, executed] = numbers;
    let count = u64::try_from(bytes.len()).unwrap() / dtype.size();
    let bytes = &bytes[..usize::try_from(count * dtype.size()).unwrap()];
    let total = count + values % 7;
    let start = counted % 9;
    let size = i64::try_from(start + total).unwrap();
    let dims = Dims::new(&[1, size]).unwrap();
    let (index, reason) = (failure.tag, failure.text);
    let reply = Reply { request, start, count, total, dtype, dims, bytes };
    let stride = 1 + values % 5;
    let wide = Dims::new(&[i64::try_from(stride).unwrap() + 1, size.max(1)]).unwrap();
    let one = &[7; 8][..usize::try_from(dtype.size()).unwrap()];
    let first = Reply { dims: wide, count: 1, total: total.max(1), start: 0, bytes: one, ..reply };
    let spaced = if count == 0 { first } else { Reply { dims: wide, ..reply } };
    vec![
        Message::Reply(reply),
        Message::SpacedReply(SpacedReply { reply: spaced, run: 1, stride }),
        Message::SlabReply(Reply { bytes: &[], ..reply }),
        Message::Done { request },
        Message::Failure(failure),
        Message::FailedReply { request, failure },
        Message::StatsRequest { request },
        Message::Stats(Stats { request, values, bytes: counted, bytes_peak, executed }),
        Message::WorkerJoined { index },
        Message::WorkerLeft { index, reason },
        Message::Goodbye { reason },
        Message::Peer(Peer { index, secret: Secret(*b"0123456789abcdef"), address: reason }),
        Message::Description { request, text: reason },
        Message::Ways(Ways { device: reason, group: "", is_far: true }),
    ]
}

/// One message of every kind, in words.
pub(crate) fn frames() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let class = prop::sample::select(&FailureClass::ALL[..]);
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    (any::<[u64; 5]>(), any::<[u32; 2]>(), class, op(), dtype(), bytes).prop_map(
        |(numbers, [session, tag], class, op, dtype, bytes)| {
            let text = "what happened: größer";
            let failure = Failure { session, number: numbers[0], class, op, tag, text };
            every_message(numbers, failure, dtype, &bytes).iter().map(words).collect()
        },
    )
}

fn op() -> impl Strategy<Value = Option<Op>> {
    prop::option::of(any_row().prop_map(|row| row.op))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_message_comes_back(
        numbers in any::<[u64; 5]>(),
        (session, number, tag) in any::<(u32, u64, u32)>(),
        class in prop::sample::select(&FailureClass::ALL[..]),
        op in op(),
        text in text(),
        dtype in dtype(),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        changes in changes(),
        cut in any::<bool>(),
    ) {
        let failure = Failure { session, number, class, op, tag, text: clip(&text) };
        for message in every_message(numbers, failure, dtype, &bytes) {
            let mut words = words(&message);
            let (decoded, used) = decode(&words).unwrap();
            prop_assert_eq!(&decoded, &message);
            prop_assert_eq!(used, words.len());
            prop_assert!(crate::wire::decode(&words).is_err());
            mutate(&mut words, &changes, cut);
            if let Ok((decoded, used)) = decode(&words) {
                prop_assert_eq!(self::words(&decoded), &words[..used]);
            }
        }
    }

    #[test]
    fn random_words_never_panic(
        mut words in prop::collection::vec(prop_oneof![any::<u32>(), 0..10_u32], 0..40),
        code in REPLY..=DESCRIPTION,
    ) {
        let length = u32::try_from(words.len()).unwrap();
        if let Some(first) = words.first_mut() {
            *first = length << 16 | u32::from(code);
        }
        if let Ok((decoded, used)) = decode(&words) {
            prop_assert_eq!(self::words(&decoded), &words[..used]);
        }
    }
}

#[test]
fn a_reply_must_agree_with_itself() {
    let dims = Dims::new(&[2, 3]).unwrap();
    let good =
        Reply { request: 1, start: 2, count: 1, total: 4, dtype: Dtype::F32, dims, bytes: &[0; 4] };
    let check = |reply: Reply<'_>, expected: &str| {
        let mut out = Vec::new();
        let error = encode(&Message::Reply(reply), &mut out).unwrap_err();
        assert_eq!(error.to_string(), format!("reply: {expected} do not agree"));
        assert_eq!(out, []);
    };
    assert_eq!(words(&Message::Reply(good)).len(), 17);
    check(Reply { count: 2, ..good }, "count and byte length");
    check(Reply { count: u64::MAX, ..good }, "count and byte length");
    check(Reply { total: 0, ..good }, "count and total");
    check(Reply { total: 7, ..good }, "count and total");
    check(Reply { start: 6, ..good }, "start and shape");
    check(Reply { start: u64::MAX, ..good }, "start and shape");
    let negative = Dims::new(&[-1, 0]).unwrap();
    check(Reply { dims: negative, ..good }, "shape and element count");
    let huge = Dims::new(&[i64::MAX, 2]).unwrap();
    check(Reply { dims: huge, ..good }, "shape and element count");
}

#[test]
fn a_spaced_reply_stays_inside_its_shape() {
    let dims = Dims::new(&[2, 3]).unwrap();
    let bytes = &[0; 16];
    let reply = Reply { request: 1, start: 1, count: 4, total: 4, dtype: Dtype::F32, dims, bytes };
    let good = SpacedReply { reply, run: 2, stride: 3 };
    let check = |spaced: SpacedReply<'_>, expected: &str| {
        let error = encode(&Message::SpacedReply(spaced), &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), format!("spaced_reply: {expected} do not agree"));
    };
    assert_eq!(words(&Message::SpacedReply(good)).len(), 24);
    check(SpacedReply { run: 0, ..good }, "count, run and stride");
    check(SpacedReply { run: 3, ..good }, "count, run and stride");
    check(SpacedReply { stride: 1, ..good }, "count, run and stride");
    check(SpacedReply { stride: 4, ..good }, "start and shape");
    check(SpacedReply { stride: u64::MAX, ..good }, "start and shape");
    check(SpacedReply { reply: Reply { start: 2, ..reply }, ..good }, "start and shape");
    check(SpacedReply { reply: Reply { total: 3, ..reply }, ..good }, "count and total");
}

#[test]
fn codes_are_neither_operators_nor_shared() {
    assert!(Op::table().iter().all(|row| row.code < wire::MESSAGE_CODE_FIRST));
    for (code, class) in FailureClass::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(class.code()), code);
    }
}

#[test]
fn clip_cuts_between_characters() {
    assert_eq!(clip("short"), "short");
    let long = format!("x{}", "é".repeat(TEXT_BYTES_MAX));
    assert_eq!(clip(&long).len(), TEXT_BYTES_MAX - 1);
}
