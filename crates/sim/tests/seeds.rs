//! Ranges of seeds: all correct, and failing for some seeds with each mistake that can be planted
//! in the core's outputs.

use gt_protocol::text::{self, NoNames, PayloadText};
use gt_sim::{Detail, Mistake, Scenario, Simulation, simulate};
use std::ops::Range;

/// Seeds in which a planted mistake has to be detected.
const PLANTED_SEEDS: Range<u64> = 0..200;

fn config(seed: u64, faults: bool) -> Simulation<'static> {
    Simulation {
        seed,
        steps: None,
        faults,
        cancels: false,
        detail: Detail::Nothing,
        mistake: None,
        scenario: Scenario::ManyClients,
    }
}

fn check(seeds: Range<u64>, faults: bool) {
    for seed in seeds {
        let result = simulate(&config(seed, faults)).result;
        let options = if faults { "" } else { " --faults none" };
        let again = format!("cargo run --release -p gt-sim -- {seed}{options} --trace");
        assert!(result.is_ok(), "{result:?}\nagain: {again}");
    }
}

#[test]
fn every_planted_mistake_is_found() {
    for (name, mistake) in Mistake::ALL {
        let violation = PLANTED_SEEDS.into_iter().find_map(|seed| {
            let planted = Simulation { mistake: Some(mistake), ..config(seed, true) };
            Some((seed, simulate(&planted).result.err()?))
        });
        let Some((seed, violation)) = violation else {
            panic!("seeds {PLANTED_SEEDS:?} do not show the mistake {name}");
        };
        println!("{name}: seed {seed}, {violation}");
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
    let resumed = |seed| simulate(&config(seed, true)).result.map_or(0, |summary| summary.resumed);
    let total: u64 = (0..20).map(resumed).sum();
    assert!(total >= 5, "{total} connections were taken up again");
}

#[test]
fn workers_take_the_index_of_those_that_crashed() {
    let replaced =
        |seed| simulate(&config(seed, true)).result.map_or(0, |summary| summary.replaced);
    let total: u64 = (0..40).map(replaced).sum();
    assert!(total >= 5, "{total} workers were replaced");
}

#[test]
fn instructions_run_with_those_before_them() {
    let joined = |seed| simulate(&config(seed, true)).result.map_or(0, |summary| summary.joined);
    let total: u64 = (0..40).map(joined).sum();
    assert!(total >= 5, "{total} instructions were joined");
}

#[test]
fn seeds_without_faults_are_right() {
    check(0..80, false);
}

#[test]
fn programs_with_layouts_are_right() {
    for seed in 0..60 {
        let config = Simulation { scenario: Scenario::OneClient, ..config(seed, false) };
        let result = simulate(&config).result;
        assert!(result.is_ok(), "program {seed}: {result:?}");
    }
}

#[test]
fn what_is_cancelled_was_computed_or_says_so() {
    let mut cancelled = 0;
    for seed in 0..80 {
        let config = Simulation { cancels: true, ..config(seed, seed % 2 == 0) };
        let result = simulate(&config).result;
        let again = format!("cargo run --release -p gt-sim -- {seed} --cancels --trace");
        assert!(result.is_ok(), "{result:?}\nagain: {again}");
        cancelled += result.map_or(0, |summary| summary.cancelled);
    }
    assert!(cancelled >= 15, "{cancelled} cancelled values were read");
}

#[test]
fn programs_that_are_cancelled_on_their_workers_are_right() {
    let mut cancelled = 0;
    for seed in 0..100 {
        let scenario = Scenario::OneClient;
        let config = Simulation { scenario, cancels: true, ..config(seed, false) };
        let result = simulate(&config).result;
        assert!(result.is_ok(), "program {seed}: {result:?}");
        cancelled += result.map_or(0, |summary| summary.cancelled);
    }
    assert!(cancelled >= 15, "{cancelled} cancelled values were read");
}

#[test]
fn a_program_runs_again_from_its_lines() {
    let scenario = Scenario::OneClient;
    let config = Simulation { detail: Detail::Clients, scenario, ..config(5, false) };
    let drawn = simulate(&config);
    let again = simulate(&Simulation { scenario: Scenario::Program(&drawn.program), ..config });
    let written = |trace: &[String]| {
        trace.iter().filter(|line| line.starts_with('%')).cloned().collect::<Vec<_>>()
    };
    assert!(written(&drawn.trace).len() > 10);
    assert_eq!(written(&drawn.trace), written(&again.trace));
}

#[test]
fn a_seed_repeats_itself_to_the_letter() {
    let trace =
        |seed| simulate(&Simulation { detail: Detail::Everything, ..config(seed, true) }).trace;
    assert!(trace(7) == trace(7));
    assert!(trace(7) != trace(8));
}

#[test]
fn a_trace_is_text_that_parses_back() {
    let config = Simulation { detail: Detail::Clients, ..config(3, true) };
    let mut lines = 0;
    for line in simulate(&config).trace {
        let (code, _) = line.split_once('#').unwrap();
        // A log contains only a reference to a long payload.
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
