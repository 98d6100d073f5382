"""Network settings of a configuration as options of the processes at both ends of a link.

The kernel resends data that the other host has not acknowledged, and GT checks every
`resend_probe_interval` whether that helped. After `max_resends` checks in a row without success,
the connection to the dispatcher is closed and reopened, and undelivered data is sent again.
"""

from __future__ import annotations

from gt.guava.config import DistributedConfig

__all__ = ["dispatcher_options", "worker_options"]


def dispatcher_options(config: DistributedConfig) -> list[str]:
    """Options for the command line of `gt-dispatcher`."""
    return [
        "--ask-seconds",
        str(config.resend_probe_interval),
        "--asks",
        str(config.max_resends),
        "--resume-seconds",
        str(config.ack_timeout),
    ]


def worker_options(config: DistributedConfig) -> list[str]:
    """Options for the command line of `python -m gt.worker`."""
    return [*dispatcher_options(config), "--peer-seconds", str(config.activation_timeout)]
