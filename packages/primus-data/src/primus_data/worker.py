"""The worker of the task `data`: one action, on one node.

python -m primus_data.worker inspect corpus_text_document
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from primus_core.request.arguments import Parser
from primus_data import actions
from primus_data.contract import Here
from primus_machine import variables
from primus_machine.host import HostRoot

__all__ = ["main"]


def main(words: Sequence[str]) -> int:
    """Do what the words ask for.

    Raises:
        PrimusError: it cannot be done.
    """
    parser = Parser(prog="python -m primus_data.worker")
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    actions.add_actions(parser)
    args = parser.parse_args(words)
    action = actions.find(args.action)
    if args.node_rank and not action.is_shared:
        return 0
    return action.run(args, Here(args.node_rank, args.nodes, HostRoot().environ.get(variables.RUN_DIR, "")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
