"""Links between machines as a configuration wants them: options of the processes at their ends.

The kernel sends again what the other host has not acknowledged, and GT looks every
`resend_probe_interval` whether that was in vain. After `max_resends` of such looks in a row the
connection to the dispatcher is given up and made anew, and what had not arrived goes again.
"""

from __future__ import annotations

from gt.guava.config import DistributedConfig

__all__ = ["dispatcher_options", "worker_options"]


def dispatcher_options(config: DistributedConfig) -> list[str]:
    """Words of `gt-dispatcher`'s command line."""
    return [
        "--ask-seconds",
        str(config.resend_probe_interval),
        "--asks",
        str(config.max_resends),
        "--resume-seconds",
        str(config.ack_timeout),
    ]


def worker_options(config: DistributedConfig) -> list[str]:
    """Words of `python -m gt.worker`'s command line."""
    return [*dispatcher_options(config), "--peer-seconds", str(config.activation_timeout)]
