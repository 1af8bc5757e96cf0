"""The environment that a run gets, each variable with its origin.

Who wins: `--env K=V` > `--env FILE` (both on the command line over both in primus.yaml) > hooks and patches > the
person's own environment > the experiment's `env:` > the backend > the network and the GPU's profile (model over vendor)
> base. Of a list of flags, that goes for each flag.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from primus_core import variables
from primus_core.config import submission
from primus_core.contracts import schedulers
from primus_core.environment import flag_lists
from primus_core.plan.plan import Variable
from primus_machine.errors import ConfigError, Mistakes, RequestError
from primus_machine.files import env_file, trust
from primus_machine.host import HostRoot
from primus_machine.secrets.redaction import is_secret_name, looks_secret
from primus_machine.variables import GPU_MODEL, HOME, OUTER, RUN_DIR, STREAMS, TRUSTED

__all__ = [
    "FAMILIES",
    "NAME",
    "OF_SYSTEM",
    "OWNED",
    "USER",
    "belongs_to_session",
    "cache",
    "from_options",
    "modules_beside",
    "of_experiment",
    "of_person",
    "of_python",
    "refused",
    "resolve",
]

USER = "user"
"""The origin of what the person has in the environment."""

OWNED = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", RUN_DIR, OUTER, HOME, STREAMS, TRUSTED),
        *(variables.RUN_ID, variables.PARENT, variables.IN_HOOK, variables.RESTARTED, variables.PLUGINS),
        *(variables.SUBMITTED, variables.IMAGE, variables.CACHE, variables.CARRIED, variables.ATTENDED),
        *(variables.METRICS_FILE, variables.NUMA_CPUS),
    }
)
"""What Primus and its launchers set themselves: another value would send a rank to the wrong place."""
_READ_FIRST = frozenset({GPU_MODEL})
"""What the machine is read by, before there is an option, an experiment or a hook."""

FAMILIES = (
    *("NCCL_", "RCCL_", "GLOO_", "UCX_", "IONIC_", "HSA_", "HIP_", "HIPBLASLT_", "ROCR_", "ROCBLAS_", "ROCM_", "AMD_"),
    *("MIOPEN_", "TENSILE_", "GPU_", "CUDA_", "CUBLAS_", "CUDNN_", "TORCH", "PYTORCH_", "TRITON_", "NVTE_", "XLA_"),
    *("JAX_", "TF_CPP_", "TF_GPU_", "TF_XLA_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "MALLOC_", "HF_", "TOKENIZERS_"),
    *("PRIMUS_", "LD_PRELOAD"),
)
"""Beginnings of the names of variables that change what a run does or how fast it is."""
OF_SYSTEM = frozenset({"LD_PRELOAD", "CUDA_HOME", "CUDA_PATH", "HIP_PATH", "ROCM_HOME", "ROCM_PATH", "TORCH_HOME"})
"""Variables of these families that name what is installed on a machine: a container has its own."""
_SESSION = (  # compiled where it is first asked: not for --help
    r"PWD|OLDPWD|SHLVL|_|SHELL|USER|LOGNAME|HOME|HOSTNAME|MAIL|EDITOR|VISUAL|PAGER|DISPLAY|WINDOWID|STY|TMPDIR|PATH"
    r"|COLORTERM|LS_COLORS|COLUMNS|LINES|VIRTUAL_ENV(_PROMPT)?|PS[1-4]|INVOCATION_ID|JOURNAL_STREAM|KRB5CCNAME"
    r"|(?i:https?|ftp|no|all)_(?i:proxy)|(TERM|SSH|XDG|DBUS|TMUX|LESS|HIST|CONDA|VSCODE|PMI|PMIX|LC)(_.*)?"
    r"|LANG|LANGUAGE|NNODES|NODE_RANK|MASTER_ADDR|MASTER_PORT|JAX_(COORDINATOR_(IP|PORT)|LOCAL_DEVICE_IDS)|PYTEST_.*|PRIMUS_TEST_.*"
)
_REFERENCE = r"\$\{(\w+)\}"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What every shell and every program takes as a variable's name."""


def belongs_to_session(name: str) -> bool:
    """Whether a variable says who, where and in which shell somebody is: no replay restores it, no diff shows it."""
    return name in OWNED or bool(re.fullmatch(_SESSION, name)) or name.startswith(schedulers.families())


def cache(environ: Mapping[str, str]) -> str:
    """The person's folder for what can be made again: `$PRIMUS_CACHE`, else one where caches are."""
    home = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "/tmp", ".cache")  # noqa: S108  # no home
    return environ.get(variables.CACHE) or os.path.join(home, "primus")


def of_python(cwd: str, environ: Mapping[str, str]) -> tuple[Variable, ...]:
    """What keeps `python -m` from taking modules from the folder where one stands, if others can put some there."""
    why = trust.of(environ).doubt(cwd)
    reason = f"Python imports no modules from {cwd}: {why}; to use them: {trust.command(cwd)}"
    return (Variable("PYTHONSAFEPATH", "1", "trust", reason),) if why else ()


def modules_beside(host: HostRoot, cwd: str) -> tuple[str, ...]:
    """What a person must know whose own modules lie where others can put some, too."""
    found = of_python(cwd, host.environ)
    has_modules = found and any(name.endswith(".py") for name in host.names(cwd))
    return tuple(variable.why for variable in found) if has_modules else ()


def refused(name: str) -> str:
    """Why a run's variable of this name cannot be set by an option, an experiment or a hook; empty: it can."""
    if name in OWNED:
        return "Primus sets it itself"
    return "Primus reads it before planning: export it in the shell that runs primus" if name in _READ_FIRST else ""


def from_options(options: Sequence[str], environ: Mapping[str, str]) -> tuple[Variable, ...]:
    """The variables that `--env` options give: `NAME=VALUE`, `NAME` (its value here), or a file of such lines.

    Of several with one name, the last wins: primus.yaml comes before the command line, and in each of them, files
    come first.

    Raises:
        RequestError: an option is none of these, or names a variable that is not set.
    """
    files = {o for o in options if "=" not in o and os.path.exists(submission.path(o, environ))}
    mistakes = Mistakes()
    found: list[Variable] = []
    for option in sorted(options, key=lambda option: (not hasattr(option, "where"), option not in files)):
        with mistakes:
            where = getattr(option, "where", "")  # of primus.yaml
            origin = f"--env {where}".rstrip()
            is_file = option in files
            found += _file(option, environ) if is_file else [_variable(option, environ, origin, where or "--env")]
    mistakes.refuse()
    return tuple(found)


def _file(path: str, environ: Mapping[str, str]) -> Iterable[Variable]:
    try:
        opener = trust.of(environ).opener
        with open(submission.path(path, environ), encoding="utf-8", errors="surrogateescape", opener=opener) as file:
            text = file.read()
    except OSError as error:
        raise RequestError(f"--env {path}: the file cannot be read", why=str(error.strerror)) from None
    if text.startswith(("\udcff\udcfe", "\udcfe\udcff")):  # the byte order marks
        raise RequestError(f"--env {path}: the file is UTF-16", fix="save it as UTF-8")
    mistakes, variables_of_file = Mistakes(), list[Variable]()
    for found in env_file.read_assignments(text, path, environ, mistakes):
        with mistakes:
            variables_of_file.append(_variable(found.text, environ, f"--env {path}", f"{path}:{found.line}"))
    mistakes.refuse()
    return variables_of_file


def _variable(text: str, environ: Mapping[str, str], origin: str, where: str) -> Variable:
    name, equals, value = text.partition("=")
    if not NAME.fullmatch(name):
        if not equals and ("/" in name or name.endswith(".env")):
            from primus_core.config.files import missing_file

            raise missing_file(name)
        is_pair = f"{where}: {name!r} cannot be the name of a variable"
        bare = name.removesuffix("+")
        example = f"{bare}=${{{bare}}}{value}" if bare != name else "NCCL_DEBUG=INFO"
        raise RequestError(
            is_pair if equals else f"{where}: '{name}' is neither NAME=VALUE, nor the NAME of a variable, nor a file",
            fix=f"for example {'--env ' if where == '--env' else ''}{example}",
        )
    if not equals and name not in environ:
        raise RequestError(
            f"{where}: {name} is not set, so it has no value to pass on",
            fix=f"export {name}=..., or write {'--env ' * (where == '--env')}{name}=VALUE",
            options=[name],
        )
    if why := refused(name):
        raise RequestError(f"{where}: {name} cannot be set", why=why, fix="remove it")
    if "\0" in value:
        raise RequestError(
            f"{where}: the value of {name} contains a NUL character",
            fix="environment variables cannot contain NUL characters",
        )
    value = value if equals else environ[name]
    secret = is_secret_name(name) or looks_secret(value)
    return Variable(name, value, origin, "given for this run", secret=secret, source=where)


def of_experiment(
    env: Mapping[str, object], environ: Mapping[str, str], where: Callable[[str], str]
) -> tuple[Variable, ...]:
    """The variables of an experiment's `env:`. A `${SECRET}` in a value is filled in here: a variable can be masked.

    Raises:
        ConfigError: a name that no environment takes. `where(name)` says its place in the file.
    """
    mistakes = Mistakes()
    found = []
    for name, value in env.items():
        why = (
            refused(name)
            if NAME.fullmatch(name)
            else "names have letters, digits and '_', and do not begin with a digit"
        )
        why = "a variable cannot contain a NUL character" if "\0" in str(value) else why
        if why:
            mistakes.add(ConfigError(f"'{name}' cannot be set in `env:`", where=where(name), why=why, fix="remove it"))
        text = str(value).lower() if isinstance(value, bool) else str(value)
        filled = re.sub(_REFERENCE, lambda match: environ.get(match[1], match[0]), text)
        secret = filled != text or is_secret_name(name) or looks_secret(filled)
        found.append(Variable(name, filled, "experiment", "set by the experiment", secret=secret, source=where(name)))
    mistakes.refuse()
    return tuple(found)


def of_person(name: str, value: str) -> Variable:
    """A variable of the person's own environment."""
    secret = is_secret_name(name) or looks_secret(value)
    return Variable(name, value, USER, "your own environment", secret=secret, source="the shell that runs primus")


def resolve(
    environ: Mapping[str, str],
    *,
    low: Sequence[Variable],
    forced: Sequence[Variable],
    hooks: Sequence[Variable] = (),
    options: Sequence[Variable] = (),
    families: bool = False,
) -> tuple[Variable, ...]:
    """The variables that the run gets, sorted by name, each with what it won over.

    `low` is ordered low to high: base, GPU model, network, backend, experiment. The person's `environ` wins over it,
    `hooks` over that. `forced` gives way to neither: it says where the ranks stand, and was made with the person's
    values in view. `options` win over all. What only the person set is there with `families` alone, and then only what
    begins like one of `FAMILIES`.
    """
    claims: dict[str, list[Variable]] = {}
    named = {variable.name for layer in (low, forced, hooks, options) for variable in layer}
    person = [
        of_person(name, value)
        for name, value in environ.items()
        if name in named or (families and name.startswith(FAMILIES) and not belongs_to_session(name))
    ]
    # The value of an option (`--env NAME`), a forced or a low one may be the user's own: that overrides nothing.
    for layer, repeated in ((low, ()), (person, person), (hooks, ()), (forced, person), (options, (*person, *forced))):
        for variable in layer:
            kept = [v for v in claims.get(variable.name, []) if v.value != variable.value or v not in repeated]
            claims[variable.name] = [*kept, variable]
    return tuple(_winner(claims[name]) for name in sorted(claims))


def _winner(claims: Sequence[Variable]) -> Variable:
    """The last of `claims`, with the others as what it won over. One secret among them hides them all."""
    if len(claims) > 1 and claims[0].name in flag_lists.FLAG_LISTS:
        return flag_lists.together(claims)
    *lost, winner = claims
    overrode = tuple((variable.value, variable.origin) for variable in reversed(lost))
    return winner._replace(overrode=overrode, secret=any(variable.secret for variable in claims))
