//! Builds `gt._kernels` from `csrc/` with cmake into `OUT_DIR`, where maturin picks it up for the wheel
//! (`include … from = "out-dir"` in pyproject.toml), and stubs for the modules in `gt/compat`
//! (`tools/name_stubs.py`). Without the feature `kernels`, that is under plain `cargo`, it does nothing:
//! clippy and nextest need no cmake, ninja or nanobind.

use std::env;
use std::error::Error;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_KERNELS").is_none() {
        return Ok(());
    }
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("../..");
    let out = variable("OUT_DIR")?;
    let stubs = root.join("tools/name_stubs.py");
    println!("cargo::rerun-if-changed={}", stubs.display());
    println!("cargo::rerun-if-changed={}", root.join("gt/__init__.py").display()); // lists the modules
    run(Command::new(python()).arg(stubs).arg(&out))?;
    let source = root.join("csrc").canonicalize().map_err(|error| {
        format!("{}: {error}: the C++ kernels are built from there", root.join("csrc").display())
    })?;
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CXX");
    println!("cargo::rerun-if-env-changed=CXXFLAGS");
    // Path of the nvcc that builds the CUDA kernels, if there is one. `PATH` is not watched: pip
    // sets another one in each build.
    println!("cargo::rerun-if-env-changed=GT_NVCC");
    println!("cargo::rerun-if-env-changed=CUDACXX");
    build(&source, Path::new(&out), &python())
}

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    env::var(name).map_err(|error| format!("{name}: {error}").into())
}

/// Path of the interpreter whose nanobind is used: the one that maturin names, else `python` on the
/// path.
fn python() -> String {
    env::var("PYO3_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Configures, compiles and installs into `prefix`: its root must hold the module, because maturin keeps
/// the path below `OUT_DIR` in the wheel.
fn build(source: &Path, prefix: &Path, python: &str) -> Result<(), Box<dyn Error>> {
    let tree = prefix.join("kernels");
    // --fresh: pip builds in a new temporary environment each time, so cached paths to nanobind and
    // ninja point nowhere.
    run(Command::new("cmake")
        .args(["--fresh", "-G", "Ninja", "-S"])
        .arg(source)
        .arg("-B")
        .arg(&tree)
        .arg("-DCMAKE_BUILD_TYPE=Release")
        .arg(format!("-DCMAKE_INSTALL_PREFIX={}", prefix.display()))
        .arg(format!("-DPython_EXECUTABLE={python}")))?;
    run(Command::new("cmake").arg("--build").arg(&tree).args(["--target", "install"]))
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let status = command.status().map_err(|error| {
        format!(
            "{command:?}: {error}: without build isolation, install cmake, ninja and nanobind first"
        )
    })?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
