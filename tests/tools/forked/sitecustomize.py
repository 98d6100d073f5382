"""Lets a worker of the tests begin as a fork of worker_forks.py, which has imported PyTorch.

Python imports this file at its start, where `tests/tools/forked` is in PYTHONPATH. Of the processes
that GT starts for a session it sends command line, environment and descriptors to the server, waits
for the end of the fork, and ends as that one did. Every other program goes on as if it were not
there. Nothing is imported that a program might not find imported otherwise.
"""

import os
import sys

VARIABLE = "GT_TEST_FORKS"  # the folder of the server's sockets
SOCKETS = ("--control-fd", "--fork-fd")


def _request(words):
    """The worker's descriptors and number of threads, or None for any other program."""
    if words[1:3] != ["-m", "gt.worker"]:
        return None
    options = dict(zip(words[3::2], words[4::2], strict=False))
    numbers = [int(options[name]) for name in SOCKETS if name in options]
    return (numbers, options.get("--threads", "")) if numbers else None


def _forked(folder, words):
    """Asks for a fork; returns its exit status, or None where there is no server for it."""
    request = _request(words)
    if request is None or not os.path.exists(f"{folder}/{request[1]}"):  # noqa: PTH110
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
