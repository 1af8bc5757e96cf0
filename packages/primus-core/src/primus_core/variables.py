"""Names of the environment variables with which the parts of Primus speak to each other."""

from primus_machine.variables import OUTER

PROTOCOL = 1
"""What an outer layer of Primus and an inner one agree on: these variables, and the run directory. Another number
means that they cannot work together, whatever their versions.
"""
ATTENDED = "PRIMUS_ATTENDED"
"""A file that whoever runs the container keeps locked (`multinode.watches`)."""
CACHE = "PRIMUS_CACHE"
"""The folder for what can be made again (`environment.resolve.cache`): outside of a container and inside, the same."""
CARRIED = "PRIMUS_CARRIED"
"""Folders with packages of the machine outside, for a Python of the image (`carried/sitecustomize.py`)."""
CONFIG = "PRIMUS_CONFIG"
"""The last file of the system config, where no `--config` names one: a run passes it on to all of its processes."""
IMAGE = "PRIMUS_IMAGE"
"""The image of the container around this layer, as the person named it."""
IN_HOOK = "PRIMUS_IN_HOOK"
"""Set for hooks and patches: a `primus` command that one of them types runs none of them again."""
LOG_LEVEL = "PRIMUS_LOG_LEVEL"
"""The least level that loggers write (`logger`): debug, info (the default), warning, error, critical."""
METRICS_FILE = "PRIMUS_METRICS_FILE"
"""Where a worker appends step metrics: `metrics.jsonl` in the run directory."""
NUMA_CPUS = "PRIMUS_NUMA_CPUS"
"""CPU lists by local rank, separated by `;`."""
PLUGINS = "PRIMUS_PLUGINS"
"""The person's own folder of plugin files (`config.own_plugins`): in a container, where it is outside."""
RESTARTED = "PRIMUS_RESTARTED_BY"
"""The runtime that starts the ranks of all nodes again where they fail: then no node does so by itself."""
PARENT = "PRIMUS_PARENT"
"""The run directory of the run around this process. Ranks and hooks have it in `RUN_DIR`, too; a layer inside another
run finds that one's directory there instead (`nesting`).
"""
RUN_ID = "PRIMUS_RUN_ID"
SUBMITTED = "PRIMUS_SUBMITTED"
"""The folder with what was submitted (`submission`): a job reads it instead of the files that it was planned from."""
OF_STEPS = frozenset({OUTER, RESTARTED})
"""Only the nodes of a step find these in their environment: they name the layer that started it."""
