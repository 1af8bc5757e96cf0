"""Text files that are on the machine, as documents to train on, and a cache of what was made of them.

What `prepare` and the former `primus_torchtitan.prepare_text` share: each brings how documents are written. The result
has a name made from its content, so the same sources are prepared once.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from primus_core import get_logger
from primus_core.errors import MachineError, RequestError
from primus_data.sources.walk import READ_ALREADY, LeftOut, visible_files
from primus_machine.errors import as_line
from primus_machine.files import trust
from primus_machine.files.atomic import link_atomically
from primus_machine.host import HostRoot
from primus_machine.units import counted

__all__ = [
    "INTERRUPTED",
    "STDLIB",
    "TOO_LARGE",
    "Text",
    "Write",
    "cache_key",
    "documents",
    "has_text",
    "main",
    "pieces",
]

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
STDLIB = "python-stdlib"
"""Stands for the sources and texts of the Python standard library of the running interpreter."""
Text = tuple[str, str]
"""A file's name, and what it says."""
Write = Callable[[Path, list[Text], int, int], None]
"""Writes tokenizer and documents into a folder: of these texts, with so many tokens, cut to so many characters."""

SUFFIXES = {".md", ".py", ".rst", ".txt"}
_NOT_OF_STDLIB = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test", "_bundled"}
"""Folders in the one of the standard library that are not trained on."""
LARGEST_FILE = 1 << 20
TOO_LARGE = f"larger than {LARGEST_FILE >> 20} MiB"


def documents(source: str) -> tuple[list[Text], LeftOut]:
    """Return the texts of `source`, sorted by name, and which of its files are none."""
    import sysconfig  # planning only reads a constant here

    root = Path(sysconfig.get_paths()["stdlib"] if source == STDLIB else source)
    texts, left_out, read = dict[str, Text](), LeftOut(str(root)), set[tuple[int, int]]()
    names = _stdlib_files(str(root)) if source == STDLIB else _own_files(str(root), left_out)
    for name in sorted(names, key=lambda name: (os.path.islink(name), name)):  # of a file and a link: the file
        path = Path(name)
        about = path.stat() if path.is_file() else None
        place = (about.st_dev, about.st_ino) if about else (0, 0)
        if why := READ_ALREADY if place in read else _unfit(path, about):
            left_out.add(why, name)
            continue
        try:
            text = path.read_bytes().decode("utf-8-sig")  # a byte order mark is not a part of the text
        except UnicodeDecodeError:
            left_out.add("not UTF-8", name)
            continue
        if "\0" in text or not text.strip():
            left_out.add("binary" if "\0" in text else "empty", name)
            continue
        read.add(place)
        texts[name] = (path.name, text)
    if not texts:
        what = f"no text in {root}{'; left out: ' if left_out.names else ''}{left_out}"
        why = f"looked for {', '.join(sorted(SUFFIXES))} up to {LARGEST_FILE} bytes"
        raise RequestError(what, why=why, fix="set data.text to a folder with text in UTF-8")
    return [texts[name] for name in sorted(texts)], left_out


def has_text(source: str, left_out: LeftOut) -> bool:
    """Return whether a folder has a file that can be trained on. It stops at the first one.

    `left_out` gets those before it.
    """
    for path in map(Path, _own_files(source, left_out)):
        about = path.stat() if path.is_file() else None
        why = _unfit(path, about)
        with suppress(OSError, UnicodeDecodeError):
            if not why and path.read_bytes().decode("utf-8-sig").strip():
                return True
        left_out.add(why or "without text in UTF-8", str(path))
    return False


def _own_files(root: str, left_out: LeftOut) -> Iterator[str]:
    return visible_files(root, left_out, lambda name: "caches of Python" * (name == "__pycache__"))


def _stdlib_files(root: str) -> Iterator[str]:
    def refuse(name: str) -> str:
        return "not of the library" * (name in _NOT_OF_STDLIB or name.startswith("config-"))

    return visible_files(root, LeftOut(), refuse)


def _unfit(path: Path, about: os.stat_result | None) -> str:
    """Return why a file is left out without a look into it."""
    if about is None:
        return "not regular files"
    if path.suffix not in SUFFIXES:
        return f"of other kinds than {', '.join(sorted(SUFFIXES))}"
    return "empty" if not about.st_size else TOO_LARGE * (about.st_size > LARGEST_FILE)


def pieces(text: str, size: int) -> Iterator[str]:
    """`text` cut at line ends into pieces of about `size` characters; 0: in one piece."""
    piece: list[str] = []
    length = 0
    for line in text.splitlines(keepends=True):
        if size and piece and length + len(line) > size:
            yield "".join(piece)
            piece, length = [], 0
        piece.append(line)
        length += len(line)
    yield "".join(piece)


def cache_key(texts: list[Text], *how: object) -> str:
    """A name for what comes out: names, contents, and how it is prepared."""
    import hashlib

    digest = hashlib.sha256(f"{how} {len(texts)}".encode())
    for part in (part for name, text in texts for part in (name, text)):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:32]


def main(description: str, write: Write, kind: str, argv: list[str] | None = None) -> None:
    """The command of a backend: prepare, and let `--out` be a link to the result. `kind` names the backend's form."""
    parser = argparse.ArgumentParser(prog="prepare_text", description=description.splitlines()[0])
    parser.add_argument("--source", required=True, help=f"'{STDLIB}', or a folder of text files")
    parser.add_argument("--vocab-size", type=int, required=True, help="size of the tokenizer to train")
    parser.add_argument("--document-chars", type=int, default=0, help="cut documents to about this size; 0: do not")
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps what was prepared")
    parser.add_argument("--out", type=Path, required=True, help="link to make")
    args = parser.parse_args(argv)
    try:
        _prepare(args, write, kind)
    except OSError as error:  # a full disk, a file that may not be read
        failure = MachineError(
            "the text cannot be prepared",
            why=f"{error.filename or args.cache}: {error.strerror or error}",
            fix="make the files of data.text readable, free space, or set another cache (data.cache, PRIMUS_CACHE)",
        )
        parser.exit(failure.exit_code, as_line(failure))
    except KeyboardInterrupt:  # whoever started this says so
        parser.exit(INTERRUPTED)
    except RequestError as error:  # no text, too little of it, or prepared by somebody else
        parser.exit(error.exit_code, as_line(error))


def _prepare(args: argparse.Namespace, write: Write, kind: str) -> None:
    texts, left_out = documents(args.source)
    if left_out.names and args.source != STDLIB:
        message = f"text: left out {left_out}"
        get_logger().warning("text_left_out", message=message, files=left_out.names)
    folder = args.cache / f"{kind}-{cache_key(texts, kind, args.vocab_size, args.document_chars)}"
    before = folder.is_dir()
    if not before:
        _make(folder, lambda stage: write(stage, texts, args.vocab_size, args.document_chars))
    trust.of(HostRoot().environ).require_loadable(str(folder))  # somebody else may have been faster
    message = f"text: {counted(len(texts), 'file')}, prepared {'before ' if before else ''}in {folder}"
    get_logger().info("text_prepared", message=message, files=len(texts), path=str(folder), before=before)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    link_atomically(str(folder), str(args.out))


def _make(folder: Path, write: Callable[[Path], None]) -> None:
    """Whole or not at all. Several processes may do so at once."""
    import shutil
    import tempfile

    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(stage)
        stage.chmod(0o755)  # mkdtemp's is for the owner alone
        _publish(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _publish(stage: Path, folder: Path) -> None:
    """Rename into place. Whoever comes second finds the same content there already."""
    try:
        stage.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
