"""Fetch, clean, tokenize, check, merge, split and blend training data."""

from __future__ import annotations

from primus_core.plan.plan import Worker
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request.arguments import Parser
from primus_data import actions

__all__ = ["DATA", "Data"]


class Data:
    """The task `data`: one process on each node."""

    name = "data"
    scope: Scope = "node"
    epilog = """examples:
  primus direct -- data prepare --input corpus.jsonl --output-prefix corpus --tokenizer-model tokenizer.json
  primus slurm srun -N 4 -- data prepare --input 'shards/*.jsonl' --output-prefix corpus --tokenizer-model ...
  primus data inspect corpus_text_document"""

    def add_arguments(self, parser: Parser) -> None:
        """One subcommand for each action."""
        actions.add_actions(parser)

    def plan(self, call: TaskCall) -> TaskPlan:
        """What is wrong with the request is reported before a process starts."""
        action = actions.find(call.args.action)
        node = call.distributed
        where = ("--node-rank", str(node.node_rank), "--nodes", str(node.nnodes))
        return TaskPlan(
            place=call.place("", f"data-{action.name}"),
            worker=Worker("primus_data.worker", (*where, *call.words), "single"),
            requires=action.check(call.args, call.facts.cwd),
            takes_over=getattr(action, "takes_over", False),
        )


DATA = Data()
