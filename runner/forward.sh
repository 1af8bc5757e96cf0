#!/bin/sh
# A script of AMD's Primus: the command of Primus that does the same is printed, and run (docs/coming-from.md).
primus=$(command -v primus) || { echo "primus: error: there is no primus on the PATH: see README.md" >&2; exit 3; }
python=$(dirname "$(readlink -f "$primus")")/python
if ! "$python" -c 'import primus.scripts' 2>/dev/null; then
  echo "primus: error: $0 needs the package primus of this repository: pip install packages/primus-runs packages/primus" >&2
  exit 3
fi
exec "$python" -m primus.scripts "$(basename "$0")" "$@"
