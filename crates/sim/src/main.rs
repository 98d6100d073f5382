//! `gt-sim SEED` runs one simulation and prints its trace; `gt-sim --range A..B` runs many and prints the first that
//! breaks a rule.

#![allow(clippy::print_stdout, reason = "a command prints its result")]

use gt_sim::exact::exact;
use gt_sim::{Detail, Mistake, Scenario, Simulation, SimulationResult, Summary, shrink, simulate};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
gt-sim SEED [--steps N] [--faults none|all] [--cancels] [--mistake NAME] [--trace]
gt-sim --range A..B [--steps N] [--faults none|all] [--cancels] [--mistake NAME]
gt-sim --programs A..B [--steps N] [--cancels]

  --programs  one client with layouts on workers that stay; the first program that goes wrong is made short
  --steps N   instructions of each client (drawn by the seed if not given)
  --faults    none, or all: crashes, joins, stalls, breaches of the protocol (all if not given)
  --cancels   clients cancel what they have queued, at random moments
  --mistake   planted in what the core puts out, to be found: free-early, gather-order, ... (`Mistake::ALL`)
  --trace     each instruction of a worker and each message as well
";

/// Kind of run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Single,
    Range,
    Programs,
}

/// Parsed command line.
struct CommandLine {
    seeds: Range<u64>,
    mode: Mode,
    steps: Option<u64>,
    faults: bool,
    cancels: bool,
    mistake: Option<(&'static str, Mistake)>,
    trace: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match parse(&words) {
        Ok(command) if command.mode == Mode::Single => one(&command),
        Ok(command) => range(&command),
        Err(text) => {
            eprint!("gt-sim: {text}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(words: &[String]) -> Result<CommandLine, String> {
    let mut command = CommandLine {
        seeds: 0..0,
        mode: Mode::Single,
        steps: None,
        faults: true,
        cancels: false,
        mistake: None,
        trace: false,
    };
    let mut has_seed = false;
    let mut rest = words.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{argument} lacks its value"));
        match argument.as_str() {
            "--range" | "--programs" => {
                let text = value()?;
                let (from, to) = text.split_once("..").ok_or(format!("{text} is no range"))?;
                command.seeds = number(from)?..number(to)?;
                command.mode = if argument == "--programs" { Mode::Programs } else { Mode::Range };
                has_seed = true;
            }
            "--steps" => command.steps = Some(number(value()?)?),
            "--faults" => command.faults = value()? != "none",
            "--mistake" => {
                let name = value()?;
                let named = Mistake::ALL.into_iter().find(|(other, _)| other == name);
                command.mistake = Some(named.ok_or(format!("{name} is no mistake"))?);
            }
            "--cancels" => command.cancels = true,
            "--trace" => command.trace = true,
            text => {
                let seed = number(text)?;
                command.seeds = seed..seed.saturating_add(1);
                has_seed = true;
            }
        }
    }
    if has_seed { Ok(command) } else { Err("no seed".to_owned()) }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

impl CommandLine {
    fn config(&self, seed: u64, detail: Detail) -> Simulation<'_> {
        let scenario =
            if self.mode == Mode::Programs { Scenario::OneClient } else { Scenario::ManyClients };
        let mistake = self.mistake.map(|(_, mistake)| mistake);
        let &Self { steps, faults, cancels, .. } = self;
        Simulation { seed, steps, faults, cancels, detail, mistake, scenario }
    }

    /// The options of a seed's run, for the line that repeats it.
    fn options(&self) -> String {
        let steps = self.steps.map(|steps| format!(" --steps {steps}")).unwrap_or_default();
        let faults = if self.faults { "" } else { " --faults none" };
        let cancels = if self.cancels { " --cancels" } else { "" };
        let mistake =
            self.mistake.map(|(name, _)| format!(" --mistake {name}")).unwrap_or_default();
        format!("{steps}{faults}{cancels}{mistake}")
    }
}

fn one(command: &CommandLine) -> ExitCode {
    let seed = command.seeds.start;
    let detail = if command.trace { Detail::Everything } else { Detail::Clients };
    let SimulationResult { result, trace, .. } = simulate(&command.config(seed, detail));
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

fn range(command: &CommandLine) -> ExitCode {
    let start = Instant::now();
    let mut total = Summary::default();
    for seed in command.seeds.clone() {
        let config = command.config(seed, Detail::Nothing);
        let outcome = simulate(&config);
        match outcome.result {
            Ok(summary) => total.add(&summary),
            Err(violation) if command.mode == Mode::Programs => {
                println!("program {seed}: WRONG at {violation}");
                let program = shrink(&config, outcome.program);
                let scenario = Scenario::Program(&program);
                let shown = simulate(&Simulation { scenario, detail: Detail::Clients, ..config });
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
                    command.options()
                );
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let seeds = command.seeds.end.saturating_sub(command.seeds.start);
    let rate = f64::from(exact::<_, u32>(seeds)) / seconds;
    println!("{total:?}");
    println!(
        "seeds {}..{}: right, in {seconds:.1} s, {rate:.0} seeds/s",
        command.seeds.start, command.seeds.end
    );
    ExitCode::SUCCESS
}
