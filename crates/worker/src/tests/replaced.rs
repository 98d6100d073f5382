//! A worker that is gone, and another one that takes its index: news beside the instructions
//! arrives at any time.

use super::collective::list;
use super::device::DeviceConduct;
use super::links::{Worker, run_until_idle, workers};
use super::*;

const SIZE: i64 = 3_001;

fn all_reduce(out: u32, tag: i64) -> Instruction<'static> {
    op(Op::AllReduce, &[out], &[0], &[list(&[0, 1]), Attr::Choice(0), Attr::Int(tag)])
}

/// News of the end of one worker and of the next of its index.
#[derive(Clone, Copy, Debug)]
enum News {
    Gone,
    Joined,
    /// Instructions, followed by a collective that means the new one.
    Instructions,
}

const ORDERS: [[News; 3]; 6] = [
    [News::Gone, News::Joined, News::Instructions],
    [News::Gone, News::Instructions, News::Joined],
    [News::Joined, News::Gone, News::Instructions],
    [News::Joined, News::Instructions, News::Gone],
    [News::Instructions, News::Gone, News::Joined],
    [News::Instructions, News::Joined, News::Gone],
];

fn tell(news: News, first: &mut Worker, earlier: &Worker, later: &Worker) {
    match news {
        News::Gone => earlier.leaves(),
        News::Joined => later.is_heard_of(),
        News::Instructions => {
            first.are_sent_words(&later.introduction());
            first.is_sent(&[all_reduce(2, 6), read(2, 2, SIZE)]);
        }
    }
}

#[test]
fn the_earlier_one_fails_what_is_in_flight_and_nothing_else() {
    for order in ORDERS {
        let mut all = workers(2);
        let (mut earlier, mut first) = (all.pop().unwrap(), all.pop().unwrap());
        first.is_sent(&[full(0, SIZE, 7), all_reduce(1, 5)]);
        while first.go() | earlier.go() {}
        assert!(first.stream.is_busy() && first.answers().is_empty());
        let later = earlier.successor(&DeviceConduct::default());
        let mut both = [first, later];
        both[1].is_sent(&[full(0, SIZE, 1), all_reduce(1, 6), read(1, 1, SIZE)]);
        for news in order {
            let [first, later] = &mut both;
            tell(news, first, &earlier, later);
            run_until_idle(&mut both);
        }
        let [first, later] = &mut both;
        let (failures, others): (Vec<_>, Vec<_>) =
            first.answers().into_iter().partition(|answer| matches!(answer, Answer::Failure(_)));
        let [Answer::Failure(lost)] = &failures[..] else { panic!("{order:?}: {failures:?}") };
        assert_eq!((lost.tag, &*lost.fault.text), (1001, "worker 1 is gone"), "{order:?}");
        let numbers = vec![7 * 3 + 1; usize::try_from(SIZE).unwrap()];
        assert_eq!(others, [answer(2, &numbers)], "{order:?}");
        assert_eq!(later.answers(), [answer(1, &numbers)], "{order:?}");
        assert!(!first.stream.is_busy() && !later.stream.is_busy(), "{order:?}");
    }
}
