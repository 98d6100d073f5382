//! The program `gt-dispatcher`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gt_server::main(std::env::args_os().skip(1)).into()
}
