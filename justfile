# Every command a person types here. `just` alone lists them; CI calls nothing that a person cannot.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Recipes of `just check`.
check_recipes := "_clippy _types _lint"

export PATH := justfile_directory() / ".venv/bin:" + justfile_directory() / "target/tools/bin:" + env("PATH")

_list:
    @just --list --unsorted

# Make .venv and install GT into it, editable, with every tool; again after a change in crates/python or csrc
setup:
    test -d .venv || python3 -m venv .venv
    .venv/bin/pip install -e '.[dev]'

# Write the files that are generated from ops.toml
gen:
    python tools/gen.py

# Write the texts of help(), and run their examples beside PyTorch; lists names without a sentence or an example
reference:
    python tools/reference.py
    python tools/gen.py

# Apply every formatter
format:
    cargo fmt --all
    ruff check --fix-only --quiet
    ruff format --quiet
    find csrc gt/worker/aten gt/torch/fast -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' | xargs clang-format -i

# Format, lint, types, import rules, generated files, two at a time; changes nothing
check:
    python tools/side_by_side.py {{ check_recipes }}

_clippy:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

_types:
    mypy
    # Methods by PyTorch's schemas take any arguments; their types say which.
    python -m mypy.stubtest --concise --ignore-unused-allowlist --allowlist <(sed 's/^/gt._core.Tensor./' gt/compat/missing_methods.txt) \
        --allowlist <(sed -En 's/^[a-z]*[mi][a-z]* ([a-z0-9_]+).*/gt._core.Tensor.\1_?/p' gt/tensors/aten/schemas.txt) gt._core

_lint:
    ruff format --check
    ruff check
    lint-imports --no-logo
    find csrc gt/worker/aten gt/torch/fast -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' | xargs clang-format --dry-run -Werror
    python tools/gen.py --check

# Run PyTorch's samples of every operator, ask the planner about its rules; write results.json, rules.json, docs/ops.md. With names: print how those fare
ops *names:
    CUDA_VISIBLE_DEVICES= python tools/ops_report.py {{ names }}
    {{ if names == "" { "CUDA_VISIBLE_DEVICES= python tools/rules_report.py && python tools/gen.py" } else { "" } }}

# PyTorch's samples of every operator, in every dtype, and their gradients, in the Python and the ATen engine: the same bits. With NAMES those entries
engines *names:
    python tests/operators/harness/engines.py {{ names }}

# All tests: Rust, then Python
test: rust python

# Rust tests: units, properties, golden traces, doc tests
rust:
    cargo nextest run --workspace --profile ci
    cargo test --doc --workspace --quiet

# Python tests: operators against PyTorch, real processes, tidiness, README; benchmarks run once, untimed
python *args:
    pytest {{ args }}

# Python tests with PyTorch's libraries on an older processor's loops: a test that depends on this machine's rounding fails
older *args:
    ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 pytest {{ args }}

# Simulator: a range of seeds, each a cluster with faults and a program with layouts, compared bit for bit with the oracle
sim seeds="0..2000":
    cargo run --release --quiet -p gt-sim -- --range {{ seeds }}
    cargo run --release --quiet -p gt-sim -- --programs {{ seeds }}

# Eight mistakes planted in the core's output: the simulator must find every one
planted:
    cargo test --quiet -p gt-sim --test seeds -- planted --nocapture

# Accept the present output of golden tests; read the diff before committing it
golden:
    UPDATE_EXPECT=1 cargo nextest run --workspace
    EXPECTTEST_ACCEPT=1 pytest tests

# GT beside PyTorch, timed: the table, then the pytest-benchmark cases
bench:
    cd benchmarks && python compare.py
    pytest benchmarks --benchmark-enable --timeout 600

# On a machine with GPUs: the tests that need one, then collectives and a training step, timed, into RESULTS.md
gpu:
    test -e /dev/nvidiactl || { echo "no CUDA device"; exit 1; }
    pytest tests -m gpu --timeout 600
    cd benchmarks && python gpu/kernels.py && python gpu/collectives.py --markdown && python gpu/step.py --markdown

# Where a benchmark's time goes, by process and function: perf over a row of `benchmarks/compare.py --help`
profile row="emit" rounds="300":
    #!/usr/bin/env bash
    set -euo pipefail
    command -v perf >/dev/null || { echo "perf is not installed (Debian: linux-perf)"; exit 1; }
    mkdir -p target/profile
    out="{{ justfile_directory() }}/target/profile/{{ row }}"
    # cpu-clock: virtual machines have no counters of cycles
    (cd benchmarks && perf record --quiet --event cpu-clock --freq 4999 -g --output "$out.data" python compare.py "{{ row }}" --rounds {{ rounds }})
    perf report --input "$out.data" --stdio --no-children --call-graph none --sort pid,dso,symbol --percent-limit 0.3 2>/dev/null |
        sed -e '/^#/d' -e '/^$/d' -e 's/[ -]*$//' | cut -c 1-150 >"$out.txt"
    head -n 40 "$out.txt"
    echo "all of it: $out.txt; who calls what: perf report --input $out.data"

# Rust documentation, with warnings as errors, and the pages made from the table
docs: gen
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# The documentation site into target/site, warnings as errors; nothing of it needs a network
site:
    NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --strict --config-file tools/site/mkdocs.yml

# C++ kernels alone, without the wheel, and their tests; CUDA's need the emulator too
kernels:
    cmake -S csrc -B target/kernels -G Ninja -DPython_EXECUTABLE="$(command -v python)"
    cmake --build target/kernels
    KERNELS_UNDER_TEST=target/kernels pytest tests/kernels/test_*_kernels.py

# CUDA kernels on a CPU, under csrc/emulator: values, races, deadlocks, bounds; with a NAME only those tests
emulator name="":
    cmake -S csrc/emulator -B target/emulator -G Ninja
    cmake --build target/emulator
    target/emulator/emulator_tests "{{ name }}"

# All of them, and their success into tools/judged.txt: `just python` runs them only where something changed since
emulated:
    cmake -S csrc/emulator -B target/emulator -G Ninja
    cmake --build target/emulator --target emulator_tests
    target/emulator/emulator_tests
    python tools/judged.py --record emulated

# CUDA kernels through nvcc for sm_80, sm_90a and PTX: registers as in csrc/cuda/resources.txt (`--write` accepts), no spill; then the module that embeds them
cuda *args:
    test -d target/cuda/venv || python -m venv target/cuda/venv
    target/cuda/venv/bin/pip install --quiet --disable-pip-version-check 'cuda-toolkit[nvcc,cccl]==13.2.*'
    target/cuda/venv/bin/python tools/cuda_kernels.py {{ args }}
    cmake -S csrc -B target/kernels -G Ninja -DPython_EXECUTABLE="$(command -v python)"
    cmake --build target/kernels
    python tools/cuda_kernels.py --loaded target/kernels
    python tools/judged.py --record cuda

# The kernels' tests under the sanitizers of addresses, undefined behaviour and threads; not the cases that differ in values alone, nor Hopper's products, a minute that the emulator checks itself
sanitize:
    cmake -S csrc -B target/sanitize -G Ninja -DGT_SANITIZE=ON -DPython_EXECUTABLE="$(command -v python)"
    cmake --build target/sanitize
    LD_PRELOAD="$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 KERNELS_UNDER_TEST=target/sanitize \
        pytest -q -n auto -p no:cacheprovider -m "not values_only" -k "not products_on_hopper" \
        tests/kernels/test_*_kernels.py tests/cuda/test_cuda_kernels.py
    TSAN_OPTIONS=halt_on_error=1 target/sanitize/threads_test
    python tools/judged.py --record sanitize

# Lines by language, and the size of the wheel
size:
    #!/usr/bin/env bash
    set -euo pipefail
    for kind in rs py cpp h cu toml md; do
        printf '%-5s %7d lines\n' "$kind" "$(git ls-files -co --exclude-standard "*.$kind" | xargs -r cat | wc -l)"
    done
    pip wheel --quiet --no-deps --wheel-dir target/size .
    du -h target/size/*.whl

# The wheel into target/dist, named after the oldest Linux that it runs on, and checked; `--helper` adds the ATen helper for the torch that is installed
wheel *args:
    python tools/wheel.py {{ args }}

# Install that wheel without Rust or PyTorch under each Python from 3.10 that is here, and use it
smoke:
    python tools/smoke.py

# Each example alone, in an empty folder, four at a time
examples:
    #!/usr/bin/env bash
    set -euo pipefail
    one() { (cd "$(mktemp -d)" && timeout 300 python "$1" >/dev/null) && echo "== $1" || { echo "== $1 failed"; exit 1; }; }
    export -f one
    printf '%s\n' "{{ justfile_directory() }}"/examples/*.py | xargs -P 4 -I {} bash -c 'one {}' # each waits for processes most of the time

# Fuzz the decoders, all targets together for so many seconds
fuzz seconds="60":
    #!/usr/bin/env bash
    set -euo pipefail
    command -v cargo-fuzz >/dev/null || cargo install --locked --quiet --root target/tools cargo-fuzz
    cd crates/protocol
    mapfile -t targets < <(cargo fuzz list)
    mkdir -p "{{ justfile_directory() }}/target/fuzz"
    for target in "${targets[@]}"; do
        log="{{ justfile_directory() }}/target/fuzz/$target.log"
        cargo fuzz run --sanitizer none "$target" -- -max_total_time=$(({{ seconds }} / ${#targets[@]})) >"$log" 2>&1 ||
            { tail -n 60 "$log"; exit 1; }
        echo "$target: $(grep '^Done' "$log")"
    done

# Under a minute: formats, clippy of the crates you changed, the core's tests, fast Python tests
quick:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo fmt --all --check
    ruff format --check --quiet
    ruff check --quiet
    for crate in $(git status --porcelain --untracked-files=all crates | cut -c4- | cut -d/ -f2 | sort -u); do
        cargo clippy --quiet --all-targets -p "gt-$crate" -- -D warnings
    done
    cargo nextest run -p gt-protocol -p gt-dispatcher
    pytest -m fast $(grep -rl --include='test_*.py' 'mark\.fast' tests)

# These two judge what they have not judged yet: tools/judged.txt
_cuda:
    python tools/judged.py cuda || just cuda

_sanitize:
    python tools/judged.py sanitize || just sanitize

# All checks of ci except the Python tests, two at a time: whatever compiles Rust in one order, the rest beside it
checks:
    python tools/side_by_side.py "_clippy rust sim wheel smoke" _cuda _types _sanitize fuzz site _lint examples

# Every check that a commit must pass; Python tests come last
ci: checks (python "-n" "2" "--dist" "loadfile")

# Frameworks over PyTorch on the device `mux`, beside themselves on the host: in a venv of their own above .venv
frameworks *args:
    test -d target/frameworks || python -m venv target/frameworks
    python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        >"$(target/frameworks/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
    target/frameworks/bin/pip install --quiet --disable-pip-version-check \
        'accelerate>=1.15,<2' 'transformers>=5.24,<6' 'lightning>=2.6,<3' 'timm>=1.0,<2'
    target/frameworks/bin/python -m pytest --slow tests/front/test_front_frameworks.py tests/front/test_front_transformers.py {{ args }}

# Advisories against crates and Python packages, and licences; a tool that is absent or offline is named
audit:
    python tools/audit.py

# The sizes that the project claims, all or some PARTs of them; writes benchmarks/full/DATE.md and layouts.png
sizes *parts:
    nice python benchmarks/full.py {{ parts }}

# ci, then slow checks: the claimed sizes, benchmarks, frameworks, 100 steps of every program, ten minutes of fuzzing, advisories
full: ci docs bench sizes frameworks
    just planted
    GT_ZOO_STEPS=100 pytest tests/front/test_zoo.py
    just fuzz 600
    just audit
