"""Lets a worker of the tests begin as a fork of worker_forks.py, which has imported PyTorch.

Python imports this file at its start, where `tests/tools/forked` is in PYTHONPATH. Of a worker,
which a session or a test has started, it sends command line, environment and descriptors to the
server, waits for the end of the fork, and ends as that one did; meanwhile its name
(`/proc/PID/comm`) has the fork's number. Every other program goes on as if it were not there, and
so do processes that start several workers, and workers in another network. Nothing is imported that
a program might not find imported otherwise.
"""

import os
import sys

VARIABLE = "GT_TEST_FORKS"  # the folder of the server's sockets
SOCKETS = ("--control-fd", "--fork-fd")
# Options of processes that start workers themselves, or take their place from an engine.
SEVERAL = ("--count", "--supervise", "--end-with-input", "--launch", "--place-seconds")
NETWORK = "/proc/self/ns/net"


def _request(words):
    """The worker's descriptors and number of threads, or None for any other program."""
    if words[1:3] != ["-m", "gt.worker"] or any(name in words for name in SEVERAL):
        return None
    options = dict(zip(words[3:], words[4:], strict=False))  # noqa: RUF007 - needs an import
    numbers = [int(options[name]) for name in SOCKETS if name in options]
    return numbers, options.get("--threads", "")


def _has_server(folder, threads):
    """True where a server of this network forks workers with so many threads."""
    try:
        return (
            threads != ""
            and os.path.exists(f"{folder}/{threads}")  # noqa: PTH110
            and os.readlink(f"{folder}/network") == os.readlink(NETWORK)  # noqa: PTH115
        )
    except OSError:
        return False


def _forked(folder, words):
    """Asks for a fork; returns its exit status, or None where there is no server for it."""
    request = _request(words)
    if request is None or not _has_server(folder, request[1]):
        return None
    import _socket
    import signal

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    descriptors = [0, 1, 2, *request[0]]
    fields = [os.getcwd(), str(len(words) - 3), *words[3:]]  # noqa: PTH109
    fields += [f"{name}={value}" for name, value in os.environ.items()]
    text = os.fsencode("\0".join(fields))
    try:
        for descriptor in descriptors:
            os.fstat(descriptor)
        connection.connect(f"{folder}/{request[1]}")
        rights = b"".join(one.to_bytes(4, sys.byteorder) for one in descriptors)
        length = len(text).to_bytes(8, "little")
        connection.sendmsg([length], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        connection.sendall(text)
        answer = connection.recv(8)
    except OSError:
        return None
    number = int.from_bytes(answer, "little", signed=True)
    if len(answer) != 8 or number <= 0:  # refused: an environment of its own
        return None
    with open("/proc/self/comm", "w") as name:  # noqa: PTH123
        name.write(f"fork {number}")
    for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(other, lambda which, _frame: os.kill(number, which))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in descriptors:  # ends of pipes close with the fork
        os.close(descriptor)
    ended = connection.recv(8)
    return int.from_bytes(ended, "little", signed=True) if len(ended) == 8 else -signal.SIGKILL


def _begin():
    folder = os.environ.get(VARIABLE)
    status = _forked(folder, sys.orig_argv) if folder else None
    if status is None:
        return
    if status < 0:
        import signal

        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(max(status, 0))


_begin()
