"""`gt doctor`: whether this machine has what GT needs, and what to type where it has not.

A check looks at one thing, changes nothing and starts no worker. `gt env` prints facts for a
report; this judges them.
"""

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gt import config, launch
from gt.compat import version
from gt.tools import environment, top

OK, NOTE, WRONG = "ok", "note", "wrong"
TORCH = "pip install 'gt-tensor[worker]'"
TORCH_OLDEST = (2, 11)
FILES_MIN = 4096  # descriptors: each peer of a dispatcher takes up to three
SHARED_BYTES_MIN = 2**28  # size of /dev/shm, for NCCL and for data loaders
SOCKET_BYTES = 2**24  # size of a socket's buffer that fills a slow link
CALL_SECONDS = 2.0
NET = pathlib.Path("/sys/class/net")
CORE = pathlib.Path("/proc/sys/net/core")
BUFFERS = ("rmem_max", "wmem_max")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of one check.

    Args:
        name: the thing that was checked.
        state: `ok`, `note` (something is slower or not possible), or `wrong`.
        text: the state that was found.
        remedy: a command or change that helps; empty if nothing must be done.
    """

    name: str
    state: str
    text: str
    remedy: str = ""


def run(*, as_json: bool) -> int:
    """Print all findings.

    Returns:
        0, or 1 if a finding is wrong.
    """
    findings = [finding for check in CHECKS for finding in check()]
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        print(shown(findings), end="")
    return int(any(finding.state == WRONG for finding in findings))


def shown(findings: Iterable[Finding]) -> str:
    """Lines for a person: state, name, finding; below it the remedy."""
    lines = []
    findings = list(findings)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        lines.append(f"{finding.state:5}  {finding.name:{width}}  {finding.text}")
        lines += [f"{'':5}  {'':{width}}  → {finding.remedy}"] if finding.remedy else []
    return "".join(f"{line}\n" for line in lines)


def itself() -> list[Finding]:
    """GT, its own kernels, and Python."""
    text = f"{version.gt} on Python {sys.version.split()[0]}"
    kernels = importlib.util.find_spec("gt._kernels") is not None
    return [
        Finding(name="GT", state=OK, text=text),
        Finding(name="own kernels", state=OK, text="gt._kernels is there")
        if kernels
        else Finding(
            name="own kernels",
            state=NOTE,
            text="gt._kernels is missing: GT was built without csrc",
            remedy="install a wheel of GT, or build it with CMake and a C++ compiler there",
        ),
    ]


def pytorch() -> list[Finding]:
    """PyTorch, which workers compute with."""
    name = "PyTorch"
    try:
        installed = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return [
            Finding(
                name=name,
                state=NOTE,
                text="not installed: workers here compute with GT's own kernels and numpy",
                remedy=TORCH,
            )
        ]
    numbers = tuple(int(word) for word in installed.split("+")[0].split(".")[:2])
    if numbers < TORCH_OLDEST:
        oldest = ".".join(map(str, TORCH_OLDEST))
        remedy = f"pip install 'torch>={oldest}'"
        return [Finding(name=name, state=WRONG, text=f"{installed} is too old", remedy=remedy)]
    return [Finding(name=name, state=OK, text=installed)]


def gpus() -> list[Finding]:
    """GPUs that the driver shows, and whether PyTorch sees them."""
    count = config.gpu_count()
    if not count:
        hidden = config.with_settings().get("CUDA_VISIBLE_DEVICES") is not None
        text = "none that CUDA_VISIBLE_DEVICES leaves" if hidden else "none: workers use the CPU"
        return [Finding(name="GPUs", state=OK, text=text)]
    if importlib.util.find_spec("torch") is None:
        return [Finding(name="GPUs", state=NOTE, text=f"{count}, which need PyTorch", remedy=TORCH)]
    import torch

    seen = torch.cuda.device_count()
    if seen == count:
        names = {torch.cuda.get_device_name(index) for index in range(seen)}
        return [Finding(name="GPUs", state=OK, text=f"{count}: {', '.join(sorted(names))}")]
    built = torch.version.cuda
    remedy = (
        "install PyTorch with CUDA: this one is for the CPU"
        if built is None
        else f"nvidia-smi: the driver must know CUDA {built}, with which PyTorch was built"
    )
    text = f"{count} here, of which PyTorch sees {seen}"
    return [Finding(name="GPUs", state=WRONG, text=text, remedy=remedy)]


def compilers() -> list[Finding]:
    """The compiler that builds helpers beside a program."""
    name, compiler = "C++ compiler", config.cpp_compiler()
    if shutil.which(compiler) is None:
        return [
            Finding(
                name=name,
                state=NOTE,
                text=f"{compiler} is not found: small operators of PyTorch's workers take longer",
                remedy="apt install g++, or CXX=PATH",
            )
        ]
    source = "#include <concepts>\nstatic_assert(std::same_as<int, int>);\n"
    done = subprocess.run(
        [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    text = said.stdout.partition("\n")[0]
    if done.returncode:
        remedy = "CXX=PATH of a compiler for C++20 (GCC 11, Clang 14 or later)"
        return [Finding(name=name, state=NOTE, text=f"{text}: not for C++20", remedy=remedy)]
    return [Finding(name=name, state=OK, text=text)]


def front() -> list[Finding]:
    """The way in which PyTorch programs call operators of the device `mux`."""
    name, slow = "torch front end", "operators are called in Python"
    if importlib.util.find_spec("torch") is None:
        return []
    if config.front() == "off":
        return [Finding(name=name, state=OK, text=f"{slow}: GT_FRONT=off")]
    headers = pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not headers.is_file():
        text = f"{slow}, since there is no {headers}"
        return [Finding(name=name, state=NOTE, text=text, remedy="apt install python3-dev")]
    from gt.worker.aten import build, compiling

    try:
        path = compiling.kept(build.front(), "front")
    except compiling.UnavailableError as error:
        return [Finding(name=name, state=NOTE, text=f"{slow}: {error}")]
    if path is None:
        text = f"{slow} until a library for this torch is compiled, beside the next long program"
        return [Finding(name=name, state=OK, text=text)]
    return [Finding(name=name, state=OK, text="operators are called in C++")]


def cache() -> list[Finding]:
    """The folder for helpers and clusters."""
    folder = config.cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = f"{folder}: {error.strerror}"
        remedy = "GT_CACHE_DIR=PATH of a folder that can be written to"
        return [Finding(name="cache folder", state=NOTE, text=text, remedy=remedy)]
    return [Finding(name="cache folder", state=OK, text=str(folder))]


def memory() -> list[Finding]:
    """Memory that processes share: memfds, and the file system of other libraries."""
    findings = []
    try:
        os.close(os.memfd_create("gt-doctor", os.MFD_ALLOW_SEALING))
        findings.append(Finding(name="shared memory", state=OK, text=environment.shared_memory()))
    except OSError as error:
        text = f"memfd_create: {error.strerror}"
        remedy = "allow memfd_create in the sandbox of this process; until then GT_NO_RING=1"
        return [Finding(name="shared memory", state=WRONG, text=text, remedy=remedy)]
    path = environment.SHARED_MEMORY
    if pathlib.Path(path).exists() and shutil.disk_usage(path).total < SHARED_BYTES_MIN:
        text = f"{path} is small for NCCL and data loaders: {environment.shared_memory()}"
        remedy = "docker run --shm-size=8g, or an emptyDir of medium Memory in a pod"
        findings = [Finding(name="shared memory", state=NOTE, text=text, remedy=remedy)]
    return findings


def limits() -> list[Finding]:
    """Limits of a process: descriptors."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < FILES_MIN:
        text = f"{most} open files at most, enough for {most // 3} peers of a dispatcher"
        remedy = f"ulimit -Hn {FILES_MIN}, or LimitNOFILE= of the unit"
        return [Finding(name="open files", state=NOTE, text=text, remedy=remedy)]
    shown = "no limit" if most == resource.RLIM_INFINITY else f"{most} at most"
    return [Finding(name="open files", state=OK, text=shown)]


def ports() -> list[Finding]:
    """The loopback interface, the default port, and the named dispatcher."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as error:
        text = f"no socket on the loopback interface: {error.strerror}"
        remedy = "ip link set lo up, or allow sockets in the sandbox of this process"
        return [Finding(name="ports", state=WRONG, text=text, remedy=remedy)]
    findings = [Finding(name="ports", state=OK, text="a socket on the loopback interface")]
    host, _, port = top.ADDRESS.rpartition(":")
    if called(host, int(port)) is not None:
        text = f"something listens on {top.ADDRESS}, where examples do"
        remedy = f"gt top {top.ADDRESS} --once shows whether it is a dispatcher; else -p PORT"
        findings.append(Finding(name="port", state=NOTE, text=text, remedy=remedy))
    return [*findings, *dispatcher()]


def dispatcher() -> list[Finding]:
    """The dispatcher of GT_ADDRESS."""
    address = config.address()
    if address is None or address.startswith("unix:"):
        return []
    host, _, port = address.rpartition(":")
    took = called(host.strip("[]"), int(port)) if port.isdigit() else None
    if took is None:
        text = f"nothing answers at GT_ADDRESS={address}"
        remedy = "python -m gt.server there; or unset GT_ADDRESS"
        return [Finding(name="dispatcher", state=WRONG, text=text, remedy=remedy)]
    return [
        Finding(name="dispatcher", state=OK, text=f"{address} answers after {took * 1000:.1f} ms")
    ]


def called(host: str, port: int) -> float | None:
    """Seconds until a connection is accepted; None if it is not."""
    start = time.monotonic()
    try:
        socket.create_connection((host, port), CALL_SECONDS).close()
    except OSError:
        return None
    return time.monotonic() - start


def links() -> list[Finding]:
    """Network interfaces, this machine's name for others, and the buffers of sockets."""
    findings = []
    interfaces = [path for path in sorted(NET.glob("*")) if path.name != "lo"]
    states = [
        f"{path.name} {speed(path)}" for path in interfaces if word(path / "operstate") == "up"
    ]
    text = ", ".join(states) or "no interface is up but loopback"
    findings.append(Finding(name="links", state=OK, text=text))
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        address = ""
    if not address or address.startswith("127."):
        where = f"is {address}" if address else "is unknown"
        text = f"{name} {where}: workers of other hosts cannot call this one by its name"
        remedy = "gt launch --host ADDRESS, one by which other hosts reach this machine"
        findings.append(Finding(name="host name", state=NOTE, text=text, remedy=remedy))
    small = [one for one in BUFFERS if int(word(CORE / one) or SOCKET_BYTES) < SOCKET_BYTES]
    if small:
        text = f"net.core.{' and net.core.'.join(small)} cut buffers for slow links"
        remedy = f"sysctl -w {' '.join(f'net.core.{one}={SOCKET_BYTES}' for one in small)}"
        findings.append(Finding(name="socket buffers", state=NOTE, text=text, remedy=remedy))
    return findings


def speed(interface: pathlib.Path) -> str:
    """Speed that the driver reports; virtual interfaces report none."""
    megabits = word(interface / "speed")
    return f"{megabits} Mb/s" if megabits.isdigit() else "of unknown speed"


def word(path: pathlib.Path) -> str:
    """The content of a small file of the kernel; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def engines() -> list[Finding]:
    """Launchers whose programs are installed here."""
    ready: list[str] = []
    missing: list[str] = []
    for name in [*launch.ENGINES, *launch.added()]:
        absent = launch.engine(name).missing()
        (missing if absent else ready).append(f"{name} ({', '.join(absent)})" if absent else name)
    findings = [Finding(name="gt launch --on", state=OK, text=", ".join(ready))]
    if missing:
        text = f"not here: {', '.join(missing)}"
        findings.append(Finding(name="gt launch --on", state=OK, text=text))
    return findings


def settings() -> list[Finding]:
    """GT's variables."""
    mistakes = environment.wrong(config.with_settings())
    return [Finding(name="variables", state=WRONG, text=one, remedy="gt env") for one in mistakes]


CHECKS: tuple[Callable[[], list[Finding]], ...] = (
    itself,
    pytorch,
    gpus,
    compilers,
    front,
    cache,
    memory,
    limits,
    ports,
    links,
    engines,
    settings,
)
