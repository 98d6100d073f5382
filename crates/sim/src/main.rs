//! `gt-sim SEED` runs one simulation and prints its trace; `gt-sim --range A..B` runs many and prints the first that
//! breaks a rule.

#![allow(clippy::print_stdout, reason = "what a command prints is what it is for")]

use gt_sim::{Cast, Config, Detail, Outcome, Summary, shrink, simulate};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
gt-sim SEED [--steps N] [--faults none|all] [--trace]
gt-sim --range A..B [--steps N] [--faults none|all]
gt-sim --programs A..B [--steps N]

  --programs  one client with layouts on workers that stay; the first program that goes wrong is made short
  --steps N   instructions of each client (drawn by the seed if not given)
  --faults    none, or all: crashes, joins, stalls, breaches of the protocol (all if not given)
  --trace     each instruction of a worker and each message as well
";

/// Which simulations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Range,
    Programs,
}

/// What the command line asks for.
struct Asked {
    seeds: Range<u64>,
    kind: Kind,
    steps: Option<u64>,
    faults: bool,
    trace: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments) {
        Ok(asked) if asked.kind == Kind::Single => one(&asked),
        Ok(asked) => range(&asked),
        Err(text) => {
            eprint!("gt-sim: {text}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Asked, String> {
    let mut asked =
        Asked { seeds: 0..0, kind: Kind::Single, steps: None, faults: true, trace: false };
    let mut given = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{argument} lacks its value"));
        match argument.as_str() {
            "--range" | "--programs" => {
                let text = value()?;
                let (from, to) = text.split_once("..").ok_or(format!("{text} is no range"))?;
                asked.seeds = number(from)?..number(to)?;
                asked.kind = if argument == "--programs" { Kind::Programs } else { Kind::Range };
                given = true;
            }
            "--steps" => asked.steps = Some(number(value()?)?),
            "--faults" => asked.faults = value()? != "none",
            "--trace" => asked.trace = true,
            text => {
                let seed = number(text)?;
                asked.seeds = seed..seed.saturating_add(1);
                given = true;
            }
        }
    }
    if given { Ok(asked) } else { Err("no seed".to_owned()) }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

impl Asked {
    fn config(&self, seed: u64, detail: Detail) -> Config<'_> {
        let cast = if self.kind == Kind::Programs { Cast::Alone } else { Cast::Crowd };
        Config { seed, steps: self.steps, faults: self.faults, detail, cast }
    }

    /// The options that a seed was run with, for the line that repeats it.
    fn options(&self) -> String {
        let steps = self.steps.map(|steps| format!(" --steps {steps}")).unwrap_or_default();
        let faults = if self.faults { "" } else { " --faults none" };
        format!("{steps}{faults}")
    }
}

fn one(asked: &Asked) -> ExitCode {
    let seed = asked.seeds.start;
    let detail = if asked.trace { Detail::Everything } else { Detail::Clients };
    let Outcome { result, trace, .. } = simulate(&asked.config(seed, detail));
    for line in trace {
        println!("{line}");
    }
    match result {
        Ok(summary) => {
            println!("# seed {seed}: right; {summary:?}");
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("# seed {seed}: WRONG at {violation}");
            ExitCode::FAILURE
        }
    }
}

fn range(asked: &Asked) -> ExitCode {
    let start = Instant::now();
    let mut total = Summary::default();
    for seed in asked.seeds.clone() {
        let config = asked.config(seed, Detail::Nothing);
        let outcome = simulate(&config);
        match outcome.result {
            Ok(summary) => total.add(&summary),
            Err(violation) if asked.kind == Kind::Programs => {
                println!("program {seed}: WRONG at {violation}");
                let program = shrink(&config, outcome.program);
                let cast = Cast::Scripted(&program);
                let shown = simulate(&Config { cast, detail: Detail::Clients, ..config });
                for line in shown.trace {
                    println!("{line}");
                }
                if let Err(violation) = shown.result {
                    println!("# made short: {violation}");
                }
                return ExitCode::FAILURE;
            }
            Err(violation) => {
                println!("seed {seed}: WRONG at {violation}");
                println!(
                    "again: cargo run --release -p gt-sim -- {seed}{} --trace",
                    asked.options()
                );
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let seeds = asked.seeds.end.saturating_sub(asked.seeds.start);
    let rate = f64::from(u32::try_from(seeds).unwrap_or(u32::MAX)) / seconds;
    println!("{total:?}");
    println!(
        "seeds {}..{}: right, in {seconds:.1} s, {rate:.0} seeds/s",
        asked.seeds.start, asked.seeds.end
    );
    ExitCode::SUCCESS
}
