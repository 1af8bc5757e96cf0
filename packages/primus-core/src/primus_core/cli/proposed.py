"""Whether a command that an error proposes would be understood; and a command with its options where they belong."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

from primus_core.cli import commands
from primus_core.cli.segments import may_be_value
from primus_core.installed import homes
from primus_core.planning import options, run_request
from primus_core.planning.outer_layers import INNERMOST, inner_parser
from primus_core.plugins.catalogue import Catalogue
from primus_core.request import former, request
from primus_core.request.arguments import Parser, parse_segment
from primus_machine.errors import PrimusError, RequestError
from primus_machine.host import HostRoot

__all__ = ["checked", "completed", "moved", "refusal", "runtime_first", "with_variables"]

_VARIABLES = r"(?P<variables>(?:[A-Z_]+=\S+ )*)"
_COMMAND = re.compile(rf"(?P<before>(?:.*?(?:: |mean ))?`?){_VARIABLES}primus (?P<words>[^`]+)(?P<after>`?\??)")
_TYPED = ("GPUS_PER_NODE", "PRIMUS_GPU_MODEL", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
_ONLY = {"-o": ("capture",), "-M": ("gemm",), "--input": ("merge", "prepare")}
"""What commands cannot do without, and their names: a word behind one is the value of that."""
_MOST = 3
"""So many mistakes of a command are mended one after the other."""


def checked(fix: str, retyped: Callable[[list[str], PrimusError], str], most: int = _MOST) -> str:
    """Return the lines of `fix`, and what is accepted instead of commands there that Primus refuses.

    `retyped` answers an error of a command. Where nothing is left of `fix`: where to look.
    """
    left, head = [], ""
    for line in fix.split("\n"):
        found = _COMMAND.fullmatch(line)
        words = _split(found["words"]) if found else []
        refused = refusal(words) if words else None
        if not (error := refused or (_not_planned(words) if "--" in words else None)):
            left.append(line)
            continue
        more = checked(retyped(words, error), retyped, most - 1).split("\n") if most else []
        better = [one for one in map(_COMMAND.fullmatch, more) if one and _split(one["words"])]
        if found and better:
            before, after = found["before"] + found["variables"], better[0]["words"] + found["after"]
            left.append(f"{before}{better[0]['variables']}primus {after}")
        elif found and (not refused or error.kind == "missing"):
            lacks = [one for one in error.options if refused and one[0] != "{"]  # {list}: it may be left out
            lacks = [f"{one} ..." if one[0] == "-" else former.example(error.where, one) or one for one in lacks]
            behind = 1 if "--" not in words else len(words) - words[::-1].index("--") + 1
            at = behind if "ACTION" in error.options else len(words)
            whole = shlex.join([*words[:at], *" ".join(lacks).split(), *words[at:]]) if lacks else found["words"]
            is_further = error.kind == "unfit" or (not refused and error.option[:1] == "-")
            then = f"    # then: {error.what}" if is_further else ""
            left.append(line[: found.start("words")] + whole + line[found.end("words") :] + then)
        else:
            rest = request.global_words(words)[1]
            places = [at for at, word in enumerate(rest[:-1]) if word == "--" and rest[at + 1][:1] != "-"]
            task = places[-1:] if rest[0] not in commands.names() else []
            whole = [*rest[:1], *("--" for _ in task), *(rest[at + 1] for at in task)]
            head = " ".join(whole[: 1 if getattr(refusal(whole), "kind", "") == "unknown task" else None])
    return "\n".join(dict.fromkeys(left)) or (f"see `primus {head} --help`" if head else "")


def with_variables(line: str, environ: Mapping[str, str]) -> str:
    """Return a line of a fix; before a launch in it, the variables that may have been typed before `primus`."""
    found = _COMMAND.fullmatch(line)
    if not found or not re.search(r"\S -- \S|^replay ", found["words"]) or line.count("primus ") > 1:
        return line
    typed = _TYPED if re.match(r"direct|replay", found["words"]) else _TYPED[:2]  # a scheduler places the nodes
    named = (one for one in typed if environ.get(one) and f"{one}=" not in found["variables"])
    at, own = found.start("variables"), "".join(f"{one}={shlex.quote(environ[one])} " for one in named)
    return line[:at] + own + line[at:]


def _split(text: str) -> list[str]:
    """The words of a command; none where it is text for people."""
    try:
        words = [] if set("<;:$|") & set(re.sub(r"(?<=\w):(?=\S)", "", text)) else shlex.split(text)
    except ValueError:
        return []
    return [] if {"TASK", "N", "..."} & {*words} or any(word[:1] == "[" for word in words) else words


def refusal(words: Sequence[str]) -> PrimusError | None:
    """Return the error of the command line `primus WORDS`, as far as its options say; None: it is understood."""
    if {"-h", "--help", "--version"} & {*words}:
        return None
    try:
        _, rest = request.global_words(words)
        installed = commands.names()
        if rest and rest[0] in {*installed, *homes.names("commands")}:
            if rest[0] in installed and rest[0] != "replay":  # it finds the runtimes among its words by itself
                parse_segment(commands.load(rest[0]).parser(), rest[1:])
            return None
        catalogue, asked = _parsed(words)
        for number, layer in enumerate(asked.layers, 1):
            runtime = catalogue.runtime(layer.runtime)
            if inner := [one.runtime for one in asked.layers[number:]][: not hasattr(runtime, "wrap")]:
                what = f"'{layer.runtime}' holds no other runtime"
                return RequestError(what, kind="nesting", options=inner, where=layer.runtime)
            parse_segment(options.runtime_parser(runtime), layer.words)
        if asked.task:
            task, name, rest = catalogue.task(asked.task)
            parse_segment(options.task_parser(task, name), rest)
    except RequestError as error:
        return error
    except (PrimusError, SystemExit):  # a package is not installed, which is said next; --help
        return None
    return None


def _not_planned(words: Sequence[str]) -> PrimusError | None:
    """Return the only error of the plan of a command whose options are right; None: there is none, or several."""
    try:
        catalogue, asked = _parsed(words)
        if asked.task:
            run_request.plan_request(asked, HostRoot(), catalogue, ("primus", *words))
    except RequestError as error:
        return error.each()[0] if len(error.each()) == 1 and error.kind != "file" else None  # a file may be made first
    except (Exception, SystemExit):  # whatever a plugin raises: who types the command is told
        return None
    return None


def _parsed(words: Sequence[str]) -> tuple[Catalogue, request.Request]:
    catalogue = Catalogue.here(HostRoot(), request.config_of(words))
    return catalogue, request.parse(words, catalogue.first_words("runtimes"), catalogue.first_words("tasks"))


def completed(words: Sequence[str], error: PrimusError) -> list[str]:
    """`words` with the options that were required and are missing; empty: nobody knows an example of them."""
    lacks = [names.partition("/")[0] for names in error.options]
    if not any(word.startswith("--tokenizer") for word in words):
        lacks += former.word_set(f"with {error.where}") - {*lacks, *words}
    examples = {flag: former.example(error.where, flag) for flag in lacks}
    behind = next((at for at, word in enumerate(words, 1) if word in _ONLY.get(lacks[0], ())), len(words))
    free = [at for at in range(behind, len(words)) if words[at][:1] != "-" and not may_be_value(words, at)]
    values, others = [words[at] for at in free], [words[at] for at in range(behind, len(words)) if at not in free]
    if lacks[0] == "--input" and values:
        return [*words[:behind], lacks[0], *values, *others, *(word for f in lacks[1:] for word in (f, examples[f]))]
    if not all(examples.values()) or former.word_set("ending") & {*words}:
        return []
    numbers = [*takewhile(str.isdigit, values[:3])] if lacks[0] == "-M" else []
    if values := numbers or values[:1]:
        flags = ("-M", "-N", "-K") if numbers else lacks[:1]  # `gemm 4096 4096 4096`
        named = (word for pair in zip(flags, values, strict=False) for word in pair)
        return [*words[:behind], *named, *others, *(words[at] for at in free[len(values) :])]
    return [*words, *(word for flag in lacks for word in (flag, examples[flag])[flag[0] != "-" :])]


def moved(words: Sequence[str], errors: Sequence[PrimusError]) -> list[str]:
    """Return `words` with each option that `errors` are about in the segment that has it; empty: none has any."""
    whole = list(words)
    for error in errors:
        behind = next((at for at, word in enumerate(words) if word == error.option), 0)  # the value of one, maybe
        for option in (*error.options, *words[max(behind - 1, 0) : behind]):
            flag = option.replace("/", "=").partition("=")[0]
            if flag.startswith("-"):
                whole = _moved(whole, flag) or whole
    return whole if whole != list(words) else []


def runtime_first(words: Sequence[str]) -> list[str]:
    """The command for `train direct -- pretrain`, or for that without its `--`."""
    if "--" in words:
        at = words.index("--")
        return [*words[1:at], "--", words[0], *words[at + 1 :]]
    wholes = ([*words[1:at], "--", words[0], *words[at:]] for at in range(len(words), 2, -1))
    return next((whole for whole in wholes if not refusal(whole)), [words[1], "--", words[0], *words[2:]])


def _moved(words: Sequence[str], flag: str) -> list[str]:
    try:
        catalogue, asked = _parsed(words)
        if not asked.task:
            return []
        parsers = [options.runtime_parser(catalogue.runtime(layer.runtime)) for layer in asked.layers]
        inner = inner_parser(catalogue)
        task, name, _ = catalogue.task(asked.task)
        parsers.append(options.task_parser(task, name).below(asked.task[1:]))
    except (PrimusError, SystemExit):  # another mistake comes first
        return []
    segments = [[layer.runtime, *layer.words] for layer in asked.layers] + [list(asked.task)]
    owners = [at for at, parser in enumerate(parsers) if _has(parser, segments[at][0], flag)]
    others = [segment for at, segment in enumerate(segments) if at not in owners]
    found = [(segment, at) for segment in others for at, word in enumerate(segment) if word.partition("=")[0] == flag]
    if not owners and _has(inner, INNERMOST, flag):
        owners, parsers = [len(segments) - 1], [*parsers[:-1], inner]
        segments.insert(owners[0], [INNERMOST])
    if not owners and flag == "--image" and segments[0][0] == "slurm":
        owners, parsers = [1], [parsers[0], options.runtime_parser(catalogue.runtime("container"))]
        segments.insert(1, ["container"])
    if not owners or len(found) != 1:
        return []
    segment, at = found[0]
    taken = [*_taken(segment[at:], parsers[owners[-1]])]
    del segment[at : at + len(taken)]
    owner = segments[owners[-1]]
    if taken not in (owner[at : at + len(taken)] for at in range(len(owner))):
        owner += taken
    return [*request.global_words(words)[0], *(word for segment in segments for word in (*segment, "--"))][:-1]


def _has(parser: Parser, name: str, flag: str) -> bool:
    return any(flag in action.option_strings for action in parser.actions()) or flag in former.word_set(f"of_{name}")


def _taken(words: Sequence[str], parser: Parser) -> Iterator[str]:
    """The option that `words` begin with, and its value."""
    flag, equals, _ = words[0].partition("=")
    is_switch = any(flag in action.option_strings and action.nargs == 0 for action in parser.actions())
    yield words[0]
    if not (equals or is_switch) and words[1:] and not words[1].startswith("-"):
        yield words[1]
