//! Ranges of seeds: right in a build without planted mistakes, and wrong somewhere in a build with one.
//!
//! `just planted` builds each mistake and runs this; one that no seed shows fails it.

use gt_protocol::text::{self, NoNames, PayloadText};
use gt_sim::{Cast, Config, Detail, simulate};
use std::ops::Range;

/// A build with a mistake in the core, which has to be found in these seeds.
const PLANTED_SEEDS: Range<u64> = 0..200;

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

/// The first seed that breaks a rule, which rule, and how to see it again.
fn first_wrong(mut seeds: Range<u64>, faults: bool) -> Option<String> {
    seeds.find_map(|seed| {
        let config =
            Config { seed, steps: None, faults, detail: Detail::Nothing, cast: Cast::Crowd };
        let violation = simulate(&config).result.err()?;
        let options = if faults { "" } else { " --faults none" };
        let again = format!("cargo run --release -p gt-sim -- {seed}{options} --trace");
        Some(format!("{violation}\nagain: {again}"))
    })
}

fn check(seeds: Range<u64>, faults: bool) {
    let found = if PLANTED { None } else { first_wrong(seeds, faults) };
    assert!(found.is_none(), "{}", found.unwrap_or_default());
}

#[test]
fn a_planted_mistake_is_found() {
    if PLANTED {
        match first_wrong(PLANTED_SEEDS, true) {
            Some(found) => println!("found: {found}"),
            None => panic!("seeds {PLANTED_SEEDS:?} do not show the planted mistake"),
        }
    }
}

#[test]
fn seeds_with_faults_are_right() {
    check(0..80, true);
}

#[test]
fn more_seeds_with_faults_are_right() {
    check(80..160, true);
}

#[test]
fn broken_connections_are_taken_up_again() {
    let resumed = |seed| {
        let config =
            Config { seed, steps: None, faults: true, detail: Detail::Nothing, cast: Cast::Crowd };
        simulate(&config).result.map_or(0, |summary| summary.resumed)
    };
    let total: u64 = (0..if PLANTED { 0 } else { 20 }).map(resumed).sum();
    assert!(PLANTED || total >= 5, "{total} connections were taken up again");
}

#[test]
fn seeds_without_faults_are_right() {
    check(0..80, false);
}

#[test]
fn programs_with_layouts_are_right() {
    for seed in if PLANTED { 0..0 } else { 0..60 } {
        let config =
            Config { seed, steps: None, faults: false, detail: Detail::Nothing, cast: Cast::Alone };
        let result = simulate(&config).result;
        assert!(result.is_ok(), "program {seed}: {result:?}");
    }
}

#[test]
fn a_program_runs_again_from_its_lines() {
    let config =
        Config { seed: 5, steps: None, faults: false, detail: Detail::Clients, cast: Cast::Alone };
    let drawn = simulate(&config);
    let again = simulate(&Config { cast: Cast::Scripted(&drawn.program), ..config });
    let written = |trace: &[String]| {
        trace.iter().filter(|line| line.starts_with('%')).cloned().collect::<Vec<_>>()
    };
    assert!(written(&drawn.trace).len() > 10);
    assert_eq!(written(&drawn.trace), written(&again.trace));
}

#[test]
fn a_seed_repeats_itself_to_the_letter() {
    let trace = |seed| {
        simulate(&Config {
            seed,
            steps: None,
            faults: true,
            detail: Detail::Everything,
            cast: Cast::Crowd,
        })
        .trace
    };
    assert!(trace(7) == trace(7));
    assert!(trace(7) != trace(8));
}

#[test]
fn a_trace_is_text_that_parses_back() {
    let config =
        Config { seed: 3, steps: None, faults: true, detail: Detail::Clients, cast: Cast::Crowd };
    let mut lines = 0;
    for line in simulate(&config).trace {
        let (code, _) = line.split_once('#').unwrap();
        // A long payload is only named in a log.
        if code.is_empty() || code.contains("payload=@") {
            continue;
        }
        let mut payload = Vec::new();
        let instruction = text::parse(&line, &mut NoNames, &mut payload).unwrap().unwrap();
        assert_eq!(text::format(&instruction, &NoNames, PayloadText::Reference), code.trim_end());
        lines += 1;
    }
    assert!(lines > 50, "{lines}");
}
