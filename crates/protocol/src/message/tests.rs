//! Round trips of every message, and words from a malicious peer.

use super::*;
use crate::handshake::Secret;
use crate::operator::Op;
use crate::tests::arbitrary::{any_row, changes, dtype, mutate, text};
use crate::value::{Dims, Dtype};
use proptest::prelude::*;

/// The frame of a message.
fn words<'a>(message: &impl Message<'a>) -> Vec<u32> {
    let mut out = Vec::new();
    encode(message, &mut out).unwrap();
    out
}

fn words_beside(reply: &Reply<'_>) -> Vec<u32> {
    let mut out = Vec::new();
    encode_beside(reply, &mut out).unwrap();
    out
}

/// The directions in which a frame is valid; each of them writes the same frame again. The first
/// direction's error where there is none.
pub(crate) fn read_back(frame: &[u32]) -> Result<Vec<&'static str>, WireError> {
    let bytes = vec![7; bytes_beside(frame)];
    let beside = || (!bytes.is_empty()).then_some(bytes.as_slice());
    let is_beside = wire::halves(frame[0]).0 == code::SLAB_REPLY;
    let again = |reply: &Reply<'_>| if is_beside { words_beside(reply) } else { Vec::new() };
    let mut directions = Vec::new();
    let mut check = |direction, used: usize, name: &str, again: Vec<u32>| {
        assert_eq!(again, frame[..used], "{name} {direction}");
        directions.push(direction);
    };
    let first = decode_with::<ToWorker<'_>>(frame, beside);
    if let Ok((message, used)) = &first {
        check("to a worker", *used, message.name(), words(message));
    }
    if let Ok((message, used)) = decode_with::<FromClient<'_>>(frame, beside) {
        check("from a client", used, message.name(), words(&message));
    }
    match decode_with::<FromWorker<'_>>(frame, beside) {
        Ok((FromWorker::Reply(reply), used)) if is_beside => {
            check("from a worker", used, "slab_reply", again(&reply));
        }
        Ok((message, used)) => check("from a worker", used, message.name(), words(&message)),
        Err(_) => {}
    }
    match decode_with::<ToClient<'_>>(frame, beside) {
        Ok((ToClient::Reply(reply), used)) if is_beside => {
            check("to a client", used, "slab_reply", again(&reply));
        }
        Ok((message, used)) => check("to a client", used, message.name(), words(&message)),
        Err(_) => {}
    }
    match first {
        Err(error) if directions.is_empty() => Err(error),
        Err(_) | Ok(_) => Ok(directions),
    }
}

/// The bytes that a `slab_reply` names, if they are few.
fn bytes_beside(frame: &[u32]) -> usize {
    let (Some(&[low, 0]), Some(&dtype)) = (frame.get(5..7), frame.get(9)) else { return 0 };
    let size = Dtype::from_code(dtype).map_or(0, Dtype::size);
    usize::try_from(u64::from(low.min(1 << 16)) * size).unwrap()
}

/// A frame of every kind from the same fields, and the directions in which it is valid.
fn every_frame(
    numbers: [u64; 5],
    failure: Failure<'_>,
    dtype: Dtype,
    bytes: &[u8],
) -> Vec<(Vec<u32>, &'static [&'static str])> {
    const DOWN: &[&str] = &["to a worker"];
    const BACK: &[&str] = &["from a worker"];
    const BOTH: &[&str] = &["from a worker", "to a client"];
    const CLIENT: &[&str] = &["to a client"];
    const ALL: &[&str] = &["to a worker", "from a client", "from a worker", "to a client"];
    const ASKED: &[&str] = &["to a worker", "from a client"];
    const ASKS: &[&str] = &["from a client"];
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
    let one = &[7; 16][..usize::try_from(dtype.size()).unwrap()];
    let first = Reply { dims: wide, count: 1, total: total.max(1), start: 0, bytes: one, ..reply };
    let spaced = if count == 0 { first } else { Reply { dims: wide, ..reply } };
    let spaced = SpacedReply { reply: spaced, run: 1, stride };
    let (aten, python) = (executed / 2, executed / 3);
    let (plain_bytes, packed_bytes) = (values / 3, values / 4);
    let (rounded, error_ppb, error_ppb_max) = (values / 5, values / 6, values / 7);
    let (own, joined) = (values / 8, values / 9);
    let rounding = Stats { rounded, error_ppb, error_ppb_max, own, joined, ..Stats::default() };
    let calls = Stats { aten, python, plain_bytes, packed_bytes, ..rounding };
    let stats = Stats { request, values, bytes: counted, bytes_peak, executed, ..calls };
    let secret = Secret(*b"0123456789abcdef");
    let peer = |reach| words(&ToWorker::Peer(Peer { index, incarnation: index / 2, reach }));
    let backends = Backends { device: reason, group: "", is_far: true };
    let losses = Losses { request, is_last: request.is_multiple_of(2), slots: &[3, 1 << 31] };
    vec![
        (words(&ToClient::Reply(reply)), BOTH),
        (words(&ToClient::SpacedReply(spaced)), CLIENT),
        // A reply without bytes is an ordinary reply.
        (words_beside(&if count == 0 { first } else { reply }), BOTH),
        (words(&ToClient::Done { request }), BOTH),
        (words(&ToClient::Failure(failure)), BOTH),
        (words(&ToClient::FailedReply { request, failure }), BOTH),
        (words(&ToWorker::StatsRequest { request }), ASKED),
        (words(&ToWorker::Mark { request }), DOWN),
        (words(&ToWorker::LossesRequest { request }), DOWN),
        (words(&FromClient::Cancel), ASKED),
        (words(&FromClient::Sessions { request, action: SessionAction::End, name: "exp1" }), ASKS),
        (words(&FromWorker::Stats(stats)), BACK),
        (words(&ToClient::WorkerStats { worker: index, stats }), CLIENT),
        (words(&ToClient::WorkerJoined { index, is_late: count > 1 }), CLIENT),
        (words(&ToClient::WorkerLeft { index, reason }), CLIENT),
        (words(&ToClient::Goodbye { reason }), ALL),
        (peer(Reach::Memory), DOWN),
        (peer(Reach::Calls { secret }), DOWN),
        (peer(Reach::Listens { secret, address: reason }), DOWN),
        (words(&ToClient::Description { request, text: reason }), CLIENT),
        (words(&FromWorker::Backends(backends)), BACK),
        (words(&FromWorker::Losses(losses)), BACK),
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
            every_frame(numbers, failure, dtype, &bytes).into_iter().map(|frame| frame.0).collect()
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
        for (mut frame, directions) in every_frame(numbers, failure, dtype, &bytes) {
            prop_assert_eq!(read_back(&frame).unwrap(), directions);
            prop_assert!(crate::wire::decode(&frame).is_err());
            mutate(&mut frame, &changes, cut);
            if !frame.is_empty() {
                let _ = read_back(&frame);
            }
        }
    }

    #[test]
    fn random_words_never_panic(
        mut words in prop::collection::vec(prop_oneof![any::<u32>(), 0..10_u32], 0..40),
        code in code::REPLY..=code::SLAB_REPLY,
    ) {
        let length = u32::try_from(words.len()).unwrap();
        if let Some(first) = words.first_mut() {
            *first = length << 16 | u32::from(code);
            let _ = read_back(&words);
        }
        prop_assert!(decode::<ToClient<'_>>(&[]).is_err());
    }
}

#[test]
fn bytes_beside_are_taken_once_and_only_where_they_belong() {
    let dims = Dims::new(&[2]).unwrap();
    let reply =
        Reply { request: 1, start: 0, count: 2, total: 2, dtype: Dtype::U8, dims, bytes: &[1, 2] };
    let frame = words_beside(&reply);
    let mut asked = 0;
    let read = decode_with(&frame, || {
        asked += 1;
        Some(&[1, 2])
    });
    assert_eq!((read, asked), (Ok((FromWorker::Reply(reply), frame.len())), 1));
    let reason = |bytes| decode_with::<ToClient<'_>>(&frame, || bytes).unwrap_err().reason;
    assert_eq!(reason(None), WireReason::Beside);
    assert_eq!(reason(Some(&[1])), WireReason::Disagreement("count and byte length"));
    let other = words(&FromWorker::Reply(reply));
    assert!(decode_with::<FromWorker<'_>>(&other, || unreachable!("it has its bytes")).is_ok());
}

#[test]
fn a_request_for_sessions_word_by_word() {
    let message = |action| FromClient::Sessions { request: 7, action, name: "exp1" };
    let exp1 = u32::from_le_bytes(*b"exp1");
    assert_eq!(words(&message(SessionAction::List)), [0x0006_f011, 7, 0, 0, 4, exp1]);
    assert_eq!(words(&message(SessionAction::Detach))[3], 1);
    let mut frame = words(&message(SessionAction::End));
    assert_eq!(frame[3], 2);
    assert_eq!(words(&message(SessionAction::Usage))[3], 3);
    frame[3] = 4;
    let error = decode::<FromClient<'_>>(&frame).unwrap_err();
    assert_eq!(error.reason, WireReason::Value("action", 4));
    let long = "x".repeat(65);
    let long = FromClient::Sessions { request: 7, action: SessionAction::List, name: &long };
    assert!(encode(&long, &mut Vec::new()).is_err());
}

#[test]
fn a_message_of_another_direction_is_named() {
    let frame = words(&ToClient::WorkerJoined { index: 3, is_late: false });
    let error = decode::<FromClient<'_>>(&frame).unwrap_err();
    assert_eq!(error.to_string(), "word 0: worker_joined is no message of this direction");
}

#[test]
fn a_reply_must_agree_with_itself() {
    let dims = Dims::new(&[2, 3]).unwrap();
    let good =
        Reply { request: 1, start: 2, count: 1, total: 4, dtype: Dtype::F32, dims, bytes: &[0; 4] };
    let check = |reply: Reply<'_>, expected: &str| {
        let mut out = Vec::new();
        let error = encode(&ToClient::Reply(reply), &mut out).unwrap_err();
        assert_eq!(error.to_string(), format!("reply: {expected} do not agree"));
        assert_eq!(out, []);
    };
    assert_eq!(words(&ToClient::Reply(good)).len(), 17);
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
        let error = encode(&ToClient::SpacedReply(spaced), &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), format!("spaced_reply: {expected} do not agree"));
    };
    assert_eq!(words(&ToClient::SpacedReply(good)).len(), 24);
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
fn cancels_are_counted_among_whole_frames() {
    let mut all = words(&FromClient::Cancel);
    all.extend(words(&FromClient::StatsRequest { request: 0xf012 }));
    all.extend(words(&FromClient::Cancel));
    assert_eq!(count_cancels(&all), 2);
    assert_eq!(count_cancels(&all[1..]), 1);
    assert_eq!(count_cancels(&[0, 0x0001_f012]), 0, "words that are no frames");
    assert_eq!(count_cancels(&[0x0009_0001, 0x0001_f012]), 0, "an incomplete one");
}

#[test]
fn clip_cuts_between_characters() {
    assert_eq!(clip("short"), "short");
    let long = format!("x{}", "é".repeat(TEXT_BYTES_MAX));
    assert_eq!(clip(&long).len(), TEXT_BYTES_MAX - 1);
}
