"""`python -m primus_core`: the same as `primus`."""

from primus_core.cli.main import main

raise SystemExit(main())
