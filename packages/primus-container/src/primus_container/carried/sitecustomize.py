"""Puts packages of the machine outside behind those of a container's own Python, which so gets Primus, too.

PYTHONPATH would put them in front: the image's PyTorch, made for its drivers, shall win.
"""

import os
import site

for _folder in filter(None, os.environ.get("PRIMUS_CARRIED", "").split(os.pathsep)):
    site.addsitedir(_folder)
