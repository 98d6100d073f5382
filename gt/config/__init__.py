"""Configuration: variables.py declares environment variables and environment.py reads
them, the other files what users say about layouts.

layout.py is the configuration of one signal, document.py reads it from YAML, rules.py has layouts
by parameter path, scopes.py resolves what holds at a place of the program. Nothing here emits.
"""

from gt.config.environment import (
    Rank,
    SessionOptions,
    address,
    aten_rows,
    backend,
    cache_folder,
    check,
    compilation,
    compression,
    core_count,
    cpp_compiler,
    debugs_compile,
    front,
    gpu_count,
    hotpath_min_seq,
    hotpath_threshold,
    idle_seconds,
    instruction_log,
    is_verbose,
    look_ahead,
    mpi_rank,
    own_kernels,
    process_groups,
    resolved_backend,
    rule_log,
    session_options,
    set_variables,
    stand_alone,
    threads,
    tls_ca,
    token,
    trusted_networks,
    use_nccl_interface,
    use_threads,
    use_token,
    uses_rings,
    with_gpu,
    with_settings,
)
from gt.config.layout import ShardConfig, SignalConfig
from gt.config.scopes import get_config, load_config, register_config
from gt.config.variables import PROCESS_GROUPS

__all__ = [
    "PROCESS_GROUPS",
    "Rank",
    "SessionOptions",
    "ShardConfig",
    "SignalConfig",
    "address",
    "aten_rows",
    "backend",
    "cache_folder",
    "check",
    "compilation",
    "compression",
    "core_count",
    "cpp_compiler",
    "debugs_compile",
    "front",
    "get_config",
    "gpu_count",
    "hotpath_min_seq",
    "hotpath_threshold",
    "idle_seconds",
    "instruction_log",
    "is_verbose",
    "load_config",
    "look_ahead",
    "mpi_rank",
    "own_kernels",
    "process_groups",
    "register_config",
    "resolved_backend",
    "rule_log",
    "session_options",
    "set_variables",
    "stand_alone",
    "threads",
    "tls_ca",
    "token",
    "trusted_networks",
    "use_nccl_interface",
    "use_threads",
    "use_token",
    "uses_rings",
    "with_gpu",
    "with_settings",
]


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
