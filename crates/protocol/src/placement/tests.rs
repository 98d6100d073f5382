use super::{Footprint, Layout, Mesh, Placement, ReduceOp, ShardRanges};
use crate::value::Dims;
use proptest::prelude::*;

#[test]
fn uneven_and_empty_shards_cover_the_dimension_once() {
    for (size, members, expected) in
        [(7, 2, vec![4, 3]), (1, 2, vec![1, 0]), (0, 3, vec![0, 0, 0]), (8, 3, vec![3, 3, 2])]
    {
        let ranges = ShardRanges::even(size, members);
        assert_eq!(ranges.sizes().collect::<Vec<_>>(), expected);
        assert!(ranges.cover(size));
        assert!(ranges.in_order());
    }
}

#[test]
fn blocks_are_cut_one_by_one() {
    let ranges = ShardRanges::blocked(12, 3, 2);
    assert_eq!(ranges.to_string(), "0:2+4:6+8:10|2:4+6:8+10:12");
    assert!(ranges.cover(12) && !ranges.in_order());
    assert_eq!(ranges.scaled(4).divided(4).unwrap(), ranges);
    assert!(ranges.scaled(3).divided(2).is_some() && ShardRanges::even(6, 2).divided(2).is_none());
}

#[test]
fn a_layout_reads_as_it_is_written() {
    let dims = Dims::new(&[7, 12, 4]).unwrap();
    for text in [
        "replicate@[0]",
        "shard(0)@[0,1]",
        "shard(0),replicate@[[0,1],[2,3]]",
        "partial(sum),shard(1)[0:2+4:6+8:10|2:4+6:8+10:12]@[[3,1],[0,2]]",
        "replicate,partial(max),shard(2)@[[[0,1],[2,3]],[[4,5],[6,7]]]",
        "shard(0)[0:1||1:7]@[2,1,0]",
    ] {
        let layout = Layout::parse(text, &dims).unwrap();
        assert_eq!(layout.to_string(), text);
    }
    let blocked = Layout::parse("shard(1,blocks=3)@[0,1]", &dims).unwrap();
    assert_eq!(blocked.local_dims(&dims, 1).as_slice(), [7, 6, 4]);
}

#[test]
fn what_is_no_layout_says_why() {
    let dims = Dims::new(&[7, 12]).unwrap();
    for (text, part) in [
        ("shard(0)", "`@`"),
        ("shard(2)@[0,1]", "dimension 2 of a tensor of shape [7, 12]"),
        ("shard(0),shard(0)@[[0,1],[2,3]]", "cut twice"),
        ("shard(0),replicate@[0,1]", "more placements"),
        ("shard(0)@[[0,1],[2,3]]", "1 placements"),
        ("shard(0)@[[0,1],[2]]", "no mesh"),
        ("shard(0)@[0,0]", "no mesh"),
        ("shard(0)@[]", "no mesh"),
        ("shard(0)@[0,1]]", "brackets"),
        ("shard(1,blocks=5)@[0,1]", "5 blocks"),
        ("shard(0)[0:3|4:7]@[0,1]", "each of 7 indexes once"),
        ("partial(mean)@[0]", "none of"),
        ("shard(0)@[0,x]", "no worker"),
        ("partial(sum),partial(max)@[[0,1],[2,3]]", "one layout has one reduction"),
    ] {
        let error = Layout::parse(text, &dims).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_range_is_a_range_of_ascending_intervals() {
    let ranges = |text: &str| {
        let layout = Layout::parse(text, &Dims::new(&[6]).unwrap()).unwrap();
        layout.cut_of(0).unwrap().1.clone()
    };
    assert!(ranges("shard(0,blocks=2)@[0,1]").ascending());
    assert!(ranges("shard(0)[|0:2+2:6]@[0,1]").ascending());
    assert!(!ranges("shard(0)[4:6+0:2|2:4]@[0,1]").ascending());
}

#[test]
fn a_mesh_knows_its_lines() {
    let mesh = Mesh::new(&[2, 3], &[5, 4, 3, 2, 1, 0]).unwrap();
    let lines =
        |axis| mesh.lines(axis).map(|line| mesh.workers(&line).to_vec()).collect::<Vec<_>>();
    assert_eq!(lines(0), [[5, 2], [4, 1], [3, 0]]);
    assert_eq!(lines(1), [[5, 4, 3], [2, 1, 0]]);
    assert_eq!((mesh.coordinate(4, 0), mesh.coordinate(4, 1)), (1, 1));
}

fn placement(members: usize) -> impl Strategy<Value = Placement> {
    prop_oneof![
        Just(Placement::Replicate),
        Just(Placement::Partial(ReduceOp::Prod)),
        (0_usize..2, 1_i64..4).prop_map(move |(dim, blocks)| Placement::Shard {
            dim,
            ranges: ShardRanges::blocked(12, blocks, members),
        }),
    ]
}

proptest! {
    #[test]
    fn any_layout_is_read_back(first in placement(2), second in placement(3)) {
        prop_assume!(first.cut().is_none() || first.cut() != second.cut());
        let mesh = Mesh::new(&[2, 3], &[0, 7, 2, 3, 9, 5]).unwrap();
        let layout = Layout::new(mesh, [first, second].into_iter().collect());
        let dims = Dims::new(&[12, 12]).unwrap();
        prop_assert_eq!(Layout::parse(&layout.to_string(), &dims).unwrap(), layout);
    }

    #[test]
    fn no_text_harms(text in "[a-z(),@\\[\\]0-9:|+=]{0,40}") {
        let _ = Layout::parse(&text, &Dims::new(&[3, 4]).unwrap());
    }
}

/// Positions of the whole in the order of the shard, computed for every element.
fn by_elements(layout: &Layout, dims: &Dims, place: usize, unit: u64) -> Vec<u64> {
    let mut positions = vec![0_u64];
    for (dim, &size) in dims.iter().enumerate() {
        let held = layout.held(place, dim, size);
        let indexes: Vec<u64> = held
            .iter()
            .flat_map(|interval| interval.start..interval.end)
            .map(|index| u64::try_from(index).unwrap())
            .collect();
        let size = u64::try_from(size).unwrap();
        let mut inner = Vec::new();
        for outer in positions {
            inner.extend(indexes.iter().map(|index| outer * size + index));
        }
        positions = inner;
    }
    positions
        .iter()
        .flat_map(|position| (0..unit).map(move |byte| position * unit + byte))
        .collect()
}

#[test]
fn rows_are_one_range_and_columns_are_many() {
    let dims = Dims::new(&[6, 8, 5]).unwrap();
    let of = |text: &str, place, from: u64, to: u64| {
        let layout = Layout::parse(text, &dims).unwrap();
        let footprint = Footprint::new(&layout, &dims, place, 4).unwrap();
        let ranges = footprint.ranges(from, to.min(footprint.len()));
        ranges.map(|one| (one.start, one.run, one.stride, one.count)).collect::<Vec<_>>()
    };
    assert_eq!(of("shard(0)@[0,1]", 1, 0, 9999), [(480, 480, 480, 1)]);
    assert_eq!(of("shard(1)@[0,1]", 1, 0, 9999), [(80, 80, 160, 6)]);
    assert_eq!(
        of("shard(1)@[0,1]", 1, 70, 170),
        [(150, 10, 10, 1), (240, 80, 160, 1), (400, 10, 10, 1)]
    );
    assert_eq!(of("shard(0),shard(1)@[[0,1],[2,3]]", 3, 0, 9999), [(560, 80, 160, 3)]);
    assert_eq!(of("shard(2)@[0,1]", 1, 0, 9999), [(12, 8, 20, 48)]);
    let turned = Layout::parse("shard(0)[3:6+0:3|]@[0,1]", &dims).unwrap();
    assert_eq!(Footprint::new(&turned, &dims, 0, 4), None);
}

proptest! {
    #[test]
    fn a_footprint_is_where_the_elements_are(
        sizes in prop::collection::vec(0_i64..6, 3),
        cuts in prop::collection::vec((0_usize..4, 1_i64..3), 2),
        place in 0_usize..6,
        unit in 1_u64..4,
        (from, to) in (0_u64..200, 0_u64..200),
    ) {
        let dims = Dims::new(&sizes).unwrap();
        let mesh = Mesh::new(&[2, 3], &[0, 1, 2, 3, 4, 5]).unwrap();
        let cut = |axis: usize| match cuts[axis] {
            (dim, blocks) if dim < 3 && (axis == 0 || cuts[0].0 != dim) => {
                let ranges = ShardRanges::blocked(sizes[dim], blocks, mesh.size(axis));
                Placement::Shard { dim, ranges }
            }
            _ => Placement::Replicate,
        };
        let layout = Layout::new(mesh.clone(), [cut(0), cut(1)].into_iter().collect());
        let footprint = Footprint::new(&layout, &dims, place, unit).unwrap();
        let positions = by_elements(&layout, &dims, place, unit);
        let count = u64::try_from(positions.len()).unwrap();
        prop_assert_eq!(footprint.len(), count);
        let below = positions.iter().filter(|&&position| position < from).count();
        prop_assert_eq!(footprint.before(from), u64::try_from(below).unwrap());
        let mut found = Vec::new();
        for range in footprint.ranges(from, to) {
            prop_assert!(!range.is_empty());
            found.extend(range.starts().flat_map(|start| start..start + range.run));
        }
        let place = |at: u64| usize::try_from(at.min(count)).unwrap();
        let expected = positions.get(place(from)..place(to)).unwrap_or_default();
        prop_assert_eq!(found, expected);
    }
}
