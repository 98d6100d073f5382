//! A range of seeds: right in a build without planted mistakes, and wrong somewhere in a build with one.
//!
//! `just planted` builds each mistake and runs this; a feature that no seed shows fails it.

use gt_sim::{Config, Detail, simulate};

/// Seeds of one test; they take about ten seconds in a debug build.
const SEEDS: u64 = 200;

const PLANTED: bool = cfg!(any(
    feature = "planted-answer-astray",
    feature = "planted-cause-lost",
    feature = "planted-dropped-fold",
    feature = "planted-free-early",
    feature = "planted-gather-order",
    feature = "planted-leak-on-leave",
    feature = "planted-replica-forgotten",
    feature = "planted-request-lost",
));

/// The first seed that breaks a rule, and which.
fn first_wrong(faults: bool) -> Option<String> {
    (0..SEEDS).find_map(|seed| {
        let config = Config { seed, steps: None, faults, detail: Detail::Nothing };
        let violation = simulate(&config).result.err()?;
        let options = if faults { "" } else { " --faults none" };
        Some(format!(
            "{violation}\nagain: cargo run --release -p gt-sim -- {seed}{options} --trace"
        ))
    })
}

#[test]
fn every_seed_with_faults_is_right_and_a_planted_mistake_is_found() {
    match (first_wrong(true), PLANTED) {
        (Some(found), true) => println!("found: {found}"),
        (None, true) => panic!("{SEEDS} seeds do not show the planted mistake"),
        (Some(found), false) => panic!("{found}"),
        (None, false) => {}
    }
}

#[test]
fn every_seed_without_faults_is_right() {
    if !PLANTED && let Some(found) = first_wrong(false) {
        panic!("{found}");
    }
}

#[test]
fn a_seed_repeats_itself_to_the_letter() {
    let trace = |seed| {
        simulate(&Config { seed, steps: None, faults: true, detail: Detail::Everything }).trace
    };
    assert!(trace(7) == trace(7));
    assert!(trace(7) != trace(8));
}
