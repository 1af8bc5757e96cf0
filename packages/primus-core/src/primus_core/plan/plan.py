"""The plan: everything Primus will do, as plain data.

A dry run shows it, a snapshot saves it, execution carries it out; nothing else decides anything.
`Plan.to_dict` and `replay.saved_plan.load` are inverse, except that a secret leaves as a marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from primus_machine.secrets.names import SECRET

__all__ = [
    "BACKEND_CONFIG",
    "BEFORE_RANKS",
    "EXPERIMENT",
    "METRICS",
    "PLAN",
    "SCHEMA",
    "Distributed",
    "HookPlugin",
    "Plan",
    "PlannedFile",
    "Requirement",
    "RunPlace",
    "SchedulerStep",
    "Scope",
    "Step",
    "StepKind",
    "Variable",
    "Worker",
]

SCHEMA = 3
"""Version of the plan's JSON form. It changes when an old reader would misread a new plan."""

BACKEND_CONFIG = "config/backend_config.json"
"""In the run directory: what the backend of a training plans for its worker."""
EXPERIMENT = "config/primus_config.yaml"
"""In the run directory: the experiment with all that it extends, and with the settings of the command line."""
METRICS = "metrics.jsonl"
"""In the run directory: a line for each step."""
PLAN = "plan.json"
"""In the run directory: the plan of the ranks."""


Scope = Literal["rank", "node", "run"]
"""How often a task's worker runs: on every rank, once per node, or once per run (on node 0)."""


OPTION = "--env"
"""The origin of what this option sets; behind a blank, its file."""


class Variable(NamedTuple):
    """An environment variable that Primus sets: its value, where that came from, and why."""

    name: str
    value: str
    origin: str
    why: str = ""
    secret: bool = False
    source: str = ""
    """Where the reason is documented: a page, an issue, a file."""
    overrode: tuple[tuple[str, str], ...] = ()
    """What this value won over, strongest first, as (value, origin)."""
    flags: tuple[Variable, ...] = ()
    """For a list of flags that several layers set: each flag as a separate variable."""

    @property
    def is_option(self) -> bool:
        """Whether `--env K=V` or `--env FILE` sets it."""
        return self.origin.partition(" ")[0] == OPTION


class Distributed(NamedTuple):
    """Where this node stands in the job, and where its ranks meet."""

    nnodes: int = 1
    node_rank: int = 0
    gpus_per_node: int = 1
    master_addr: str = "localhost"
    master_port: int = 29500
    tentative: bool = False
    """How many ranks there will be is not known yet: a scheduler chooses the nodes."""
    one_per_node: bool = False
    """One process drives all devices of a node, and is the only rank there (launcher `one-per-node`)."""
    once: bool = False
    """Only node 0 starts a rank, and only one."""

    @property
    def world_size(self) -> int:
        """Number of ranks over all nodes."""
        nodes = 1 if self.once else self.nnodes
        return nodes if self.one_per_node else nodes * self.gpus_per_node


class RunPlace(NamedTuple):
    """Where a run keeps its files. `directory` is absolute and does not exist yet, unless `joined`."""

    run_id: str
    directory: str
    link: str
    """`<workspace>/<exp_name>`, which will point at the newest run; empty: no link."""
    joined: bool = False
    """An outer layer made the directory: this plan adds its part."""
    outer: str = ""
    """The runtime of that layer, which keeps `metadata.json`; empty: nobody does, so node 0 does."""


class Requirement(NamedTuple):
    """Something that must be here before anything starts; missing, it is exit code 3 with `fix`.

    A folder is one to write in: it need not be there, if it can be made. A login is to a service that asks for one.
    A GPU is any; its name is empty. Memory is that of the machine, and its name so much: `25.5 GB`.
    """

    kind: Literal["module", "command", "file", "folder", "login", "gpu", "memory"]
    name: str
    fix: str


StepKind = Literal["hook", "patch", "preflight", "prepare", "rendezvous", "worker", "submit"]
"""Hooks and patches are the person's scripts; preflight looks whether the nodes are fit; preparation is the task's; in
the rendezvous, nodes wait for each other; the worker is what it is all for. A step that submits hands the run to a
scheduler, and its last word is the job's id."""
BEFORE_RANKS: tuple[StepKind, ...] = ("preflight", "rendezvous")
"""Steps in which all nodes take part, and whose failure is no rank's."""


class SchedulerStep(NamedTuple):
    """A step on the nodes of a scheduler: that one is asked what became of them."""

    name: str
    """Its name (`primus.schedulers`)."""
    together: bool = False
    """If one of these nodes fails, the others cannot continue."""
    spares: int = 0
    """So many of them may be left out of a further attempt."""
    leaves_out: bool = False
    """A further attempt leaves the nodes out that failed (`Scheduler.without`)."""
    requeue: tuple[str, ...] = ()
    """A command that puts the job back into the queue, where its time ends."""
    takes_over: bool = False
    """Where one of these nodes fails, another has seen to its work: the step succeeds if one node does."""


class AddedFlag(NamedTuple):
    """A flag that Primus adds by itself."""

    word: str
    """`--kill-on-bad-exit=1`."""
    loss: str
    """What is lost without it; empty: the step cannot do without it."""

    @property
    def name(self) -> str:
        """Return the flag without its value."""
        return self.word.partition("=")[0]


class Step(NamedTuple):
    """A process to start. `ranks`: how many processes of `programs.rank` it becomes here (0: it is a plain process)."""

    name: str
    argv: tuple[str, ...]
    cwd: str
    ranks: int = 0
    first_rank: int = 0
    kind: StepKind = "prepare"
    script: str = ""
    """The file that a hook or patch runs; it may print `env.NAME=VALUE` and `extra.name=value` (`scripts`)."""
    timeout_s: float = 0.0
    """Cut off after so many seconds; 0: it may take as long as it takes."""
    cleanup: tuple[str, ...] = ()
    """A command that takes away what the step leaves where no signal reaches; run whatever becomes of the step."""
    lock: str = ""
    """A file that is locked as long as somebody stays with the step."""
    scheduler: SchedulerStep | None = None
    """Whose nodes it runs on; None: it runs on this machine."""
    added: tuple[AddedFlag, ...] = ()
    """Flags of the command that nobody asked for: where its program does not know one, it starts without."""
    stop: tuple[str, ...] = ()
    """A command that asks what the step has started to end, where a signal to its process would not be passed on."""
    refusals: tuple[int, ...] = (126, 127)
    """Exit codes with which an outer layer's program says that it could not start what was asked: here, a shell's."""
    advice: str = ""
    """What to do where it says so."""


class PlannedFile(NamedTuple):
    """A file that the run directory gets before the first step: `path` is relative to it."""

    path: str
    text: str
    source: str = ""
    """The file that it is a copy of."""
    mode: int = 0o644
    is_link: bool = False
    """It is a link to `source`, and no copy."""


class Worker(NamedTuple):
    """What a task runs: a Python module with arguments, started by `launcher`.

    `torchrun` starts `gpus_per_node` ranks on each node, `one-per-node` one process that drives all devices there,
    `single` one plain process; packages bring others (`primus.launchers`).
    """

    module: str
    args: tuple[str, ...] = ()
    launcher: str = "torchrun"


class HookPlugin(NamedTuple):
    """A plugin with hooks: where it comes from, and what its process imports."""

    source: str
    """`acme-primus 2.1.0`, or the path of a person's file, as messages show it."""
    target: str
    """`module`, `module:object`, or the path of a file."""
    is_file: bool = False


class Plan(NamedTuple):
    """One run on this node: what will be started, with which environment, and where its files go."""

    schema: int
    primus_version: str
    command: tuple[str, ...]
    """The command line as it was typed, secrets replaced."""
    runtime: str
    task: str
    place: RunPlace
    distributed: Distributed
    environment: tuple[Variable, ...]
    steps: tuple[Step, ...]
    files: tuple[PlannedFile, ...] = ()
    requires: tuple[Requirement, ...] = ()
    config: Mapping[str, Any] | None = None
    """The resolved experiment; None for a task without one."""
    notes: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    """Words that are worth adding to the typed command for a next run, after a good end."""
    metrics_rank: int = 0
    """The global rank whose step metrics count (pipeline parallelism: the last stage's)."""
    grace_period_s: float = 8.0
    """Seconds between the forwarded signal and SIGKILL."""
    log_file: str = ""
    """A further copy of the console's text; empty: none."""
    log_limit: int = 0
    """Bytes that the log of a rank may have: its beginning and its end are kept; 0: no limit."""
    python: str = ""
    """The interpreter in the steps. A replay elsewhere has its own in its place."""
    worker: Worker | None = None
    """What the last step runs, before a runtime made a process of it: what a replay in another runtime starts from."""
    scope: Scope = "run"
    framework: str = ""
    """The backend, where the task has one."""
    model: str = ""
    """What is trained, as the experiment calls it."""
    gpu_model: str = ""
    """The model whose profile the environment follows; empty: no GPU, or none that Primus knows."""
    unset: tuple[str, ...] = ()
    """Variables of the caller that the run does not get."""
    parent: str = ""
    """The run directory that this run replays."""
    continues: str = ""
    """The directory of the earlier run whose checkpoint this run starts from; empty: none."""
    started_by: str = ""
    """The run directory of the run whose hook or rank started this one; empty: a person did."""
    hook_plugins: tuple[HookPlugin, ...] = ()
    """Plugins with Python hooks; each runs in a process beside the supervisor."""
    hook_timeout_s: float = 0.0
    """The most that a Python hook may take for one call; 0 where there is none."""
    after_failure: tuple[Step, ...] = ()
    """Programs of packages that look at the run once it has failed; each gets the exit code as its last argument."""
    preflight: str = ""
    """What `--preflight` asked for: a replay does the same; empty: nothing."""
    max_restarts: int = 0
    """How many times in a row the worker may be started again without reaching a step that it had not reached."""
    hang_timeout_s: float = 0.0
    """A worker that says nothing for so many seconds is ended as one that hangs; 0: it may be silent for ever."""
    start_timeout_s: float = 0.0
    """The same before its first step, where it compiles and loads; 0: as long as later."""
    loads: tuple[str, ...] = ()
    """Checkpoints and code, files or folders, that its worker loads, and that must be trusted (`trust`)."""
    inner: tuple[str, ...] = ()
    """The command line of the layer inside, without `primus`; empty: this is the innermost, whose steps are ranks."""

    def environ(self, caller: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the steps, where Primus itself was called with that of `caller`."""
        inherited = {name: value for name, value in caller.items() if name not in self.unset}
        return {**inherited, **{variable.name: variable.value for variable in self.environment}}

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values, with every secret replaced by `SECRET`."""
        data = _plain(self)
        for variable in data["environment"]:
            if variable["secret"]:
                variable["value"] = SECRET
                variable["overrode"] = [[SECRET, origin] for _, origin in variable["overrode"]]
        return dict(data)


def _plain(value: Any) -> Any:
    if isinstance(value, HookPlugin):
        return list(value)  # as version 0.1 saved it
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
