"""What starts inside a container: the image's own Primus, or this machine's with a Python that can run it."""

from __future__ import annotations

import os

from primus_core import variables
from primus_core.contracts import schedulers
from primus_machine import packages as metadata
from primus_machine.facts import Facts

__all__ = ["ENTRY", "arguments"]

ENTRY = """\
protocol=$1 scheduler=$2 wanted=$3 python=$4 path=$5 carrier=$6 packages=$7; shift 7
found=
if [ "$wanted" != host ]; then found=$(primus __protocol ${scheduler:+"$scheduler"} 2>/dev/null); fi
if [ "$found" = "$protocol" ]; then exec primus "$@"; fi
if [ "$wanted" = image ]; then
  what="the image has no Primus on its PATH"
  if [ -n "$found" ]; then what="the image's Primus speaks protocol $found, this one protocol $protocol"; fi
  if [ "${found#* without }" != "$found" ]; then what="the image's Primus lacks the package of scheduler $scheduler"; fi
  printf '%s\\n' "primus: error: $what" "  fix: leave out --primus image, and this machine's Primus is carried in" >&2
  exit 3
fi
has='import importlib.util as u, sys; sys.exit(not any(map(u.find_spec, ("torch", "jax"))))'
if (cd / && python3 -c "$has") 2>/dev/null; then
  behind="$carrier${PYTHONPATH:+:$PYTHONPATH}"
  works='import sys; sys.version_info < (3, 11) and sys.exit(1); import primus_core.planning.planner, pydantic'
  if (cd / && PRIMUS_CARRIED="$packages" PYTHONPATH="$behind" python3 -c "$works") 2>/dev/null; then
    PRIMUS_CARRIED="$packages" PYTHONPATH="$behind" exec python3 -m primus_core "$@"
  fi
  echo "primus: note: the image's Python cannot load this machine's Primus: this machine's Python runs" >&2
fi
if ! "$python" -c "" 2>/dev/null; then
  printf '%s\\n' "primus: error: this machine's Primus cannot run in the image: $python does not start there" \\
    "  fix: install Primus in the image, or here with a Python outside of /usr, which can be carried in" >&2
  exit 3
fi
if [ -n "$path" ]; then export PYTHONPATH="$path"; fi
exec "$python" -m primus_core "$@"
"""
"""A shell's text. Nothing of a person's is in it: words come as arguments.

The image's Python is asked in `/`: before 3.11, no variable keeps it from importing what lies in the working folder.
"""


def arguments(facts: Facts, wanted: str) -> tuple[str, ...]:
    """What the script takes before the words of the inner command: what the image's Primus must be, and this machine's.

    On a node of a job, a Primus that does not know the scheduler would take the node for the only one.
    """
    scheduler = schedulers.started(facts.environ)
    return str(variables.PROTOCOL), scheduler.name if scheduler else "", wanted, *_carried(facts)


def _carried(facts: Facts) -> tuple[str, ...]:
    """This machine's Primus: Python and its path; packages for another Python."""
    packages = filter(os.path.isdir, metadata.places())
    carrier = os.path.join(os.path.dirname(__file__), "carried")
    return facts.python, facts.environ.get("PYTHONPATH", ""), carrier, os.pathsep.join(packages)
