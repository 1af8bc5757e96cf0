"""Text files that are on the machine, as documents to train on, and a cache of what was made of them.

What `prepare` and the former `primus_torchtitan.prepare_text` share: each brings how documents are written. The result
has a name made from its content, so the same sources are prepared once.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from primus_core import get_logger
from primus_core.errors import MachineError, RequestError
from primus_machine.files import trust
from primus_machine.files.atomic import link_atomically
from primus_machine.host import HostRoot
from primus_machine.units import counted

__all__ = ["STDLIB", "Text", "Write", "cache_key", "documents", "main", "pieces", "sources"]

STDLIB = "python-stdlib"
"""Stands for the sources and texts of the Python standard library of the running interpreter."""
Text = tuple[str, str]
"""A file's name, and what it says."""
Write = Callable[[Path, list[Text], int, int], None]
"""Writes tokenizer and documents into a folder: of these texts, with so many tokens, cut to so many characters."""

SUFFIXES = {".md", ".py", ".rst", ".txt"}
SKIPPED_FOLDERS = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test", "_bundled"}
LARGEST_FILE = 1 << 20


def sources(source: str) -> list[Path]:
    """The text files of `source`, sorted by name: small enough, of a known kind, and not in a skipped folder."""
    import sysconfig  # this and those below: planning only reads a constant here

    root = Path(sysconfig.get_paths()["stdlib"] if source == STDLIB else source)
    found = sorted(_walk(root), key=lambda path: path.relative_to(root).as_posix())
    if not found:
        raise SystemExit(f"no text in {root}: looked for {', '.join(sorted(SUFFIXES))} up to {LARGEST_FILE} bytes")
    return found


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith(("config-", "."))]
        paths = (Path(folder, name) for name in files)
        yield from (p for p in paths if p.suffix in SUFFIXES and p.is_file() and 0 < p.stat().st_size <= LARGEST_FILE)


def documents(source: str) -> list[Text]:
    """Those that are UTF-8 and no binary."""
    texts = []
    for path in sources(source):
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue  # a test of codecs, or no text after all
        if "\0" not in text and text.strip():
            texts.append((path.name, text))
    return texts


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
        parser.exit(failure.exit_code, f"error: {failure}\n")
    except RequestError as error:  # prepared by somebody else, in a cache that others can write to
        parser.exit(error.exit_code, f"error: {error}\n")


def _prepare(args: argparse.Namespace, write: Write, kind: str) -> None:
    texts = documents(args.source)
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
