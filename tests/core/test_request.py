"""The command line as data: what is split where, and which words are refused."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.errors import RequestError
from primus_core.request.arguments import Parser, flags_of, parse_segment
from primus_core.request.request import Layer, Request, parse

RUNTIMES = {"direct", "container", "slurm"}
TASKS = {"train", "bench", "analyze"}

words_without_dashes = st.lists(st.text(max_size=8).filter(lambda word: word != "--"), max_size=5)


def refused(*words: str) -> RequestError:
    """The error that these words give."""
    with pytest.raises(RequestError) as caught:
        parse(words, RUNTIMES, TASKS)
    assert caught.value.fix, "an error says what to do"
    return caught.value


@given(options=words_without_dashes, task=st.lists(st.text(max_size=8), max_size=6))
def test_everything_behind_the_task_is_kept_word_for_word(options: list[str], task: list[str]) -> None:
    request = parse(["direct", *options, "--", "train", *task], RUNTIMES, TASKS)
    assert request == Request((Layer("direct", tuple(options)),), ("train", *task))


@given(chain=st.lists(st.tuples(st.sampled_from(sorted(RUNTIMES)), words_without_dashes), min_size=1, max_size=3))
def test_each_runtime_gets_its_own_words_and_a_number(chain: list[tuple[str, list[str]]]) -> None:
    words = [word for name, options in chain for word in (name, *options, "--")]
    request = parse([*words, "bench", "gemm"], RUNTIMES, TASKS)
    assert [(layer.runtime, list(layer.words)) for layer in request.layers] == chain
    assert [layer.segment for layer in request.layers] == list(range(1, len(chain) + 1))
    assert request.task_segment == len(chain) + 1


@given(st.lists(st.sampled_from(["--", "direct", "slurm", "train", "--dry-run", "--nonsense", "x", ""]), max_size=6))
def test_any_words_give_a_request_or_an_error_with_a_fix(words: list[str]) -> None:
    request, what, fix = Request((), ()), "nothing wrong", "none needed"
    try:
        request = parse(words, RUNTIMES, TASKS)
    except RequestError as error:
        what, fix = error.what, error.fix
    assert all(layer.runtime in RUNTIMES for layer in request.layers)
    assert not request.task or request.task[0] in TASKS
    assert fix
    assert "\n" not in what


def test_global_flags_stand_before_the_runtime() -> None:
    request = parse(["--debug", "--dry-run", "direct", "--", "train"], RUNTIMES, TASKS)
    assert request.dry_run
    assert request.debug
    assert not parse(["direct", "--", "train", "--dry-run"], RUNTIMES, TASKS).dry_run


def test_a_runtime_without_a_task_is_a_request_for_the_planner_to_judge() -> None:
    assert parse(["direct", "--single"], RUNTIMES, TASKS) == Request((Layer("direct", ("--single",)),), ())


def test_an_empty_segment_is_refused_by_its_number() -> None:
    assert refused("direct", "--").what == "segment 2 is empty: nothing follows the `--`"
    assert refused("direct", "--", "container", "--").what.startswith("segment 3 is empty")
    assert refused("--", "train").what == "segment 1 is empty: the command begins with `--`"


def test_global_flags_alone_are_not_said_to_begin_with_dashes() -> None:
    assert refused("--dry-run").what == "segment 1 is empty: no runtime follows"


def test_a_misspelt_runtime_is_refused_with_a_suggestion() -> None:
    error = refused("dirct", "--", "train")
    assert error.what == "segment 1: no runtime is called 'dirct'"
    assert error.fix == "did you mean 'direct'?"


def test_a_misspelt_task_is_refused_with_its_segment_and_a_suggestion() -> None:
    error = refused("direct", "--", "trian", "pretrain")
    assert error.what == "segment 2: no task is called 'trian'"
    assert error.fix == "did you mean 'train'?"
    assert "analyze, bench, train" in error.why


def test_a_task_without_a_runtime_is_told_where_to_stand() -> None:
    assert refused("train", "pretrain").fix == "primus direct -- train pretrain"


def test_an_unknown_option_of_primus_itself_is_refused() -> None:
    assert refused("--dryrun", "direct").what == "'--dryrun' is not an option of primus itself"
    assert refused("direct", "--", "--config", "x").what == "segment 2 begins with '--config'"


def parser() -> Parser:
    """A parser with an option of each kind."""
    made = Parser(prog="primus ... -- bench", segment="segment 2 (bench)")
    made.add_argument("--duration", type=float)
    made.add_argument("--dtype", choices=("bf16", "fp8"))
    return made


def parsing_error(parser: Parser, *words: str, elsewhere: tuple[str, ...] = ()) -> RequestError:
    """The error that the parser raises."""
    with pytest.raises(RequestError) as caught:
        parse_segment(parser, words, elsewhere)
    return caught.value


def test_an_unknown_option_is_refused_with_its_segment_and_a_suggestion() -> None:
    error = parsing_error(parser(), "--duraton=3")
    assert error.what == "segment 2 (bench): unknown option '--duraton=3'"
    assert error.fix == "did you mean '--duration'?"


def test_all_mistakes_of_a_segment_are_reported_at_once() -> None:
    error = parsing_error(parser(), "--dtype", "zz", "--duraton=3", "--wrong")
    assert [one.what.removeprefix("segment 2 (bench): ").partition(" (")[0] for one in error.each()] == [
        "--dtype: invalid choice: 'zz'",
        "unknown option '--duraton=3'",
        "unknown option '--wrong'",
    ]


def test_an_abbreviated_option_is_unknown() -> None:
    assert "unknown option '--dur'" in parsing_error(parser(), "--dur", "3").what


def test_a_value_of_the_wrong_kind_is_refused_with_the_known_ones() -> None:
    error = parsing_error(parser(), "--dtype", "zz")
    assert error.what.startswith("segment 2 (bench): --dtype: invalid choice: 'zz'")
    assert "bf16" in error.what
    assert error.fix == "see `primus direct -- bench --help`"


def test_a_runtime_option_behind_the_task_is_said_to_be_misplaced() -> None:
    error = parsing_error(parser(), "--numa", elsewhere=("--numa",))
    assert error.what == "segment 2 (bench): '--numa' is in the wrong segment"
    assert error.fix == "put --numa before the `--`"


def test_words_that_no_option_takes_go_to_the_rest_in_their_order() -> None:
    open_ended = parser()
    open_ended.rest_to("overrides")
    args = parse_segment(open_ended, ["a=1", "--lr", "-1e-3", "--dtype", "fp8", "--b.c=2"])
    assert args == argparse.Namespace(duration=None, dtype="fp8", overrides=["a=1", "--lr", "-1e-3", "--b.c=2"])


def test_a_subcommand_reports_the_segment_that_it_stands_in() -> None:
    top = Parser(prog="primus ... -- bench", segment="segment 2 (bench)")
    gemm: Parser = top.add_subparsers(parser_class=Parser).add_parser("gemm")
    gemm.add_argument("-M", type=int)
    assert "-M" in flags_of(top)
    assert parsing_error(top, "gemm", "-M", "x").what.startswith("segment 2 (bench): -M")
    assert top.below(["gemm", "-M"]) is gemm
