"""`python -m gt.guava.workers.network_worker --gpu-id 0 --master-ip IP --master-port PORT`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gt.errors import ConnectionLost
from gt.guava.workers.worker import MISTAKEN, NetworkWorker

__all__ = ["NetworkWorker", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gt.guava.workers.network_worker",
        description="A worker of this machine for an orchestrator of another.",
    )
    parser.add_argument("--gpu-id", type=int, default=0, metavar="N", help="which GPU (default 0)")
    parser.add_argument("--master-ip", metavar="IP", help="default: MASTER_IP, else localhost")
    parser.add_argument(
        "--master-port", type=int, metavar="PORT", help="default: MASTER_PORT, else 29500"
    )
    words = parser.parse_args(arguments)
    worker = NetworkWorker(
        gpu_id=words.gpu_id, master_ip=words.master_ip, master_port=words.master_port
    )
    try:
        worker.connect_and_train()
    except ConnectionLost as error:
        sys.stderr.write(f"{error}\n")
        return MISTAKEN
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
