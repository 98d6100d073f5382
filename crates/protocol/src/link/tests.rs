//! Sessions over connections that break anywhere, and bytes from a malicious peer.

use super::*;
use proptest::prelude::*;

const KEEP: Keep = Keep::Unacknowledged { bytes_max: 1 << 12 };

/// One end, and the bytes that it has read.
struct End {
    link: Link,
    unread: Vec<u8>,
    arrived: Vec<u32>,
    /// True if frames count as received only when the test says so, and the words of those that do.
    is_late: bool,
    received: Vec<u32>,
}

impl End {
    fn new() -> Self {
        let (unread, arrived, received) = (Vec::new(), Vec::new(), Vec::new());
        Self { link: Link::new(KEEP), unread, arrived, is_late: false, received }
    }

    /// Counts all frames as received.
    fn receive(&mut self) {
        self.link.receive_until(u64::MAX);
        self.received.clone_from(&self.arrived);
    }

    /// Another end in its place, which has what was received and what is kept.
    fn replace(&mut self) {
        let Link { sent, kept, received, .. } = &self.link;
        let kept: Vec<Vec<u32>> = kept.iter().map(|(_, words)| words.clone()).collect();
        self.link = Link::restored(1 << 12, *sent, kept.into_iter(), *received);
        self.arrived.clone_from(&self.received);
    }

    /// Takes the whole frames that have arrived.
    fn read(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.unread.extend_from_slice(bytes);
        while let Some((header, rest)) = self.unread.split_first_chunk() {
            let header = self.link.header(header)?;
            let length = usize::try_from(header.length_bytes).unwrap();
            assert!(length <= 1 << 20);
            let Some(body) = rest.get(..length) else { break };
            if self.link.is_new(header)? {
                let words = body.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
                self.arrived.extend(words);
                if self.is_late {
                    self.link.arrive(header);
                } else {
                    self.link.accept(header);
                }
            }
            self.unread.drain(..FrameHeader::BYTES + length);
        }
        Ok(())
    }
}

/// An instruction's first word and `length - 1` more.
fn instruction(length: u16, fill: u32) -> Vec<u32> {
    let mut words = vec![fill; usize::from(length)];
    words[0] = u32::from(length) << 16 | 1;
    words
}

#[derive(Clone, Debug)]
enum Step {
    /// One end sends an instruction of this many words.
    Send(bool, u16),
    /// This many of the bytes in flight to one end arrive.
    Arrive(bool, usize),
    /// One end acknowledges, if that is due.
    Acknowledge(bool),
    /// The connection breaks, with all that is in flight, and is resumed.
    Resume,
    /// The end that counts late counts all as received.
    Receive,
    /// Another end takes its place, and the connection is resumed.
    Replace,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), 1..60_u16).prop_map(|(end, length)| Step::Send(end, length)),
        4 => (any::<bool>(), 1..400_usize).prop_map(|(end, bytes)| Step::Arrive(end, bytes)),
        1 => any::<bool>().prop_map(Step::Acknowledge),
        1 => Just(Step::Resume),
        1 => Just(Step::Receive),
        1 => Just(Step::Replace),
    ]
}

fn resume(ends: &mut [End; 2], in_flight: &mut [Vec<u8>; 2]) {
    let had = [ends[0].link.received(), ends[1].link.received()];
    for (place, end) in ends.iter_mut().enumerate() {
        end.unread.clear();
        end.link.resume(had[1 - place]).unwrap();
        in_flight[1 - place].clear();
        end.link.resend(&mut in_flight[1 - place]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn words_arrive_once_and_in_order(steps in prop::collection::vec(step(), 1..120)) {
        let mut ends = [End::new(), End { is_late: true, ..End::new() }];
        // Bytes in flight to each end, and all words ever sent to it.
        let mut in_flight = [Vec::new(), Vec::new()];
        let mut sent = [Vec::new(), Vec::new()];
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Send(from, length) => {
                    let (from, to) = (usize::from(from), usize::from(!from));
                    if ends[from].link.may_send() {
                        let words = instruction(length, number);
                        sent[to].extend_from_slice(&words);
                        ends[from].link.send(words, &mut in_flight[to]);
                    }
                }
                Step::Arrive(to, bytes) => {
                    let to = usize::from(to);
                    let bytes = bytes.min(in_flight[to].len());
                    let bytes: Vec<u8> = in_flight[to].drain(..bytes).collect();
                    ends[to].read(&bytes).unwrap();
                }
                Step::Acknowledge(from) => {
                    let (from, to) = (usize::from(from), usize::from(!from));
                    if ends[from].link.owes_acknowledgement() {
                        ends[from].link.acknowledge(&mut in_flight[to]);
                        prop_assert!(!ends[from].link.owes_acknowledgement());
                    }
                }
                Step::Resume => resume(&mut ends, &mut in_flight),
                Step::Receive => ends[1].receive(),
                Step::Replace => {
                    ends[1].replace();
                    resume(&mut ends, &mut in_flight);
                }
            }
            for end in &ends {
                prop_assert!(end.link.kept_bytes < (1 << 12) + 4 * 60);
            }
        }
        resume(&mut ends, &mut in_flight);
        for to in 0..2 {
            ends[to].read(&in_flight[to]).unwrap();
            prop_assert_eq!(&ends[to].arrived, &sent[to]);
        }
    }

    #[test]
    fn bytes_that_mean_harm_are_refused_or_read(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..200),
        acknowledged in any::<u64>(),
    ) {
        let mut end = End::new();
        end.link.send(instruction(3, 0), &mut Vec::new());
        let _ = end.read(&bytes);
        prop_assert!(end.unread.len() <= bytes.len());
        let taken = end.link.resume(acknowledged).is_ok();
        prop_assert!(!taken || acknowledged <= 1);
    }
}

#[test]
fn long_words_are_cut_into_frames_of_whole_instructions() {
    let mut words = Vec::new();
    for number in 0..5 {
        words.extend(instruction(0xf000, number));
    }
    let (mut from, mut to) = (Link::new(Keep::Nothing), End::new());
    let mut bytes = Vec::new();
    from.send(words.clone(), &mut bytes);
    to.read(&bytes).unwrap();
    assert_eq!((to.link.received(), &to.arrived), (2, &words));
    assert!(from.may_send() && from.kept.is_empty());
}

#[test]
fn nothing_is_sent_beyond_what_may_be_kept() {
    let mut link = Link::new(Keep::Unacknowledged { bytes_max: 100 });
    let mut bytes = Vec::new();
    link.send(instruction(20, 0), &mut bytes);
    assert!(link.may_send());
    link.send(instruction(20, 1), &mut bytes);
    assert!(!link.may_send());
    let told = FrameHeader { length_bytes: 0, sequence: 0, acknowledged: 1 }.encode().unwrap();
    assert_eq!(link.header(&told).map(|header| header.acknowledged), Ok(1));
    assert!(link.may_send());
}

#[test]
fn what_was_never_sent_or_is_gone_cannot_be_resumed() {
    let mut link = Link::new(KEEP);
    for number in 0..3 {
        link.send(instruction(2, number), &mut Vec::new());
    }
    link.resume(1).unwrap();
    let error = link.resume(0).unwrap_err();
    assert_eq!(error.to_string(), "frame 0 is acknowledged, of 2 to 3");
    assert!(link.resume(4).is_err() && link.resume(u64::MAX).is_err());
    let told = FrameHeader { length_bytes: 0, sequence: 0, acknowledged: 4 }.encode().unwrap();
    assert!(link.header(&told).is_err());
    let gap = FrameHeader { length_bytes: 4, sequence: 2, acknowledged: 0 };
    let error = link.is_new(gap).unwrap_err();
    assert_eq!(error.to_string(), "frame 2 came after frame 0");
}
