//! Texts of scopes: printing, parsing, and refused texts.

use super::{BLOCKS_MAX, Scope, ScopePlacement, WORKER_INDEX_MAX};
use crate::wire::TEXT_BYTES_MAX;
use proptest::prelude::*;

/// Any scope that does not contradict itself.
fn scopes() -> impl Strategy<Value = Scope> {
    let name = "[A-Za-z_][A-Za-z0-9_]{0,6}";
    let mesh = prop::collection::btree_map(name, 1_u32..5, 0..=3);
    let placement = prop_oneof![
        Just(ScopePlacement::Replicate),
        (-8_i64..8).prop_map(|dim| ScopePlacement::Shard { dim })
    ];
    let dims = (any::<bool>(), prop::option::of(-8_i64..8), any::<bool>());
    let rest = (
        prop::option::of(2..=BLOCKS_MAX),
        prop::option::of(1_u32..1 << 16),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(placement, 3),
    );
    (mesh, dims, rest, Just((0..64_u32).collect::<Vec<_>>()).prop_shuffle()).prop_map(
        |(
            mesh,
            (named, axis, replicated),
            (blocks, backward, compile, is_placed, drawn),
            order,
        )| {
            let size: u32 = mesh.values().product();
            let placements: Box<[_]> = if is_placed {
                drawn.into_iter().take(mesh.len().max(1)).collect()
            } else {
                [].into()
            };
            let cuts = placements.iter().any(|placement| *placement != ScopePlacement::Replicate);
            let axis = axis.filter(|_| !is_placed);
            Scope {
                workers: named
                    .then(|| order.into_iter().take(usize::try_from(size).unwrap()).collect()),
                axis,
                replicated: replicated && axis.is_none() && !cuts,
                mesh: mesh.into_iter().map(|(name, size)| (name.into(), size)).collect(),
                placements,
                blocks: blocks.filter(|_| axis.is_some() || cuts),
                backward,
                compile,
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_reads_back(scope in scopes()) {
        let text = scope.to_string();
        prop_assert_eq!(text.parse::<Scope>().map_err(|error| error.to_string()), Ok(scope), "{}", text);
    }

    #[test]
    fn any_text_is_refused_or_written_back(
        text in "((workers|axis|mesh|blocks|placements|compile|backward|replicated|x)=[\\[\\]0-9,:a-d(-]{0,6} ?){0,4}|.{0,40}"
    ) {
        if let Ok(scope) = text.parse::<Scope>() {
            prop_assert_eq!(scope.to_string(), text);
        }
    }
}

#[test]
fn a_whole_line() {
    let text = "workers=[3,1,0,2] mesh=dp:2,tp:2 placements=replicate,shard(-1) blocks=3 backward=9 compile=true";
    let scope: Scope = text.parse().unwrap();
    assert_eq!(scope.workers.as_deref(), Some(&[3, 1, 0, 2][..]));
    assert_eq!(scope.placements[1], ScopePlacement::Shard { dim: -1 });
    assert_eq!(scope.to_string(), text);
    assert_eq!("".parse::<Scope>(), Ok(Scope::default()));
}

#[test]
fn what_is_refused() {
    let many =
        format!("workers=[{}]", (0..600).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    let huge = format!("workers=[{}]", u64::MAX);
    let long = format!("mesh={}:2", "d".repeat(TEXT_BYTES_MAX));
    for text in [
        " ",
        "axis=1 ",
        "axis=1  compile=true",
        "axis=+1",
        "axis=01",
        "axis=8",
        "axis=-9",
        "axis=one",
        "axis",
        "axis=1 axis=1",
        "compile=true axis=1",
        "compile=false",
        "replicated=yes",
        "replicated=true axis=0",
        "parent=1",
        "workers=",
        "workers=[]",
        "workers=[0,0]",
        "workers=[0, 1]",
        "workers=[-1]",
        &many,
        &huge,
        &format!("workers=[{WORKER_INDEX_MAX}]"),
        &long,
        "mesh=dp:0",
        "mesh=dp:2,dp:2",
        "mesh=2d:2",
        "mesh=a:1,b:1,c:1,d:1",
        "workers=[0,1,2] mesh=dp:2,tp:2",
        "workers=[0] mesh=a:4294967295,b:4294967295,c:4294967295",
        "placements=shard",
        "placements=partial",
        "placements=shard(0),shard(1)",
        "mesh=dp:2,tp:2 placements=shard(0)",
        "axis=0 placements=shard(0)",
        "replicated=true placements=shard(0)",
        "blocks=3",
        "axis=1 blocks=1",
        "axis=1 blocks=1025",
        "backward=0",
        "backward=65536",
    ] {
        assert!(text.parse::<Scope>().is_err(), "{text}");
    }
}
