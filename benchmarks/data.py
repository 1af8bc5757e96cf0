"""`data prepare` and `data inspect`: speed against Megatron's preprocess_data.py, memory, and a very large index.

The text is this Python's own: its standard library and its packages. The vocabularies are trained on a part of it.
Speeds are tokens in a second of CPU time, of all processes, once they are started: the time for a little text is taken
off, on both sides. One row has the whole command for 100 MB, with the start of both. Both write the same bytes, which
is checked. gigatoken gets more text than its peer.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.ratio import Row

PRIMUS = str(Path(sys.executable).with_name("primus"))
PEER = str(Path(__file__).with_name("preprocess_alone.py"))
MB = 1_000_000
_LOOKS_EVERY_S = 0.02
OWN_SPLIT = r" ?\p{L}+| ?\p{N}{1,2}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""gigatoken does not know it, so tiktoken encodes."""
ODD_SPLIT = r"\w{1,8}|\W"
"""tiktoken splits differently, so tokenizers encodes."""
WHOLE = 100
"""MB of text in the row that counts the start of both."""
LARGE = 5_000_000_000
"""Sequences and documents in an index of 100 GB."""


def _texts() -> Iterator[str]:
    """Files of this Python, mixed, so that each part of them is like the others."""
    folders = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"])
    ends = {".py", ".pyi", ".txt", ".md", ".rst"}
    paths = {path for folder in folders for path in Path(folder).rglob("*.*") if path.suffix in ends}
    for path in sorted(paths, key=_mixed):
        text = path.read_text(encoding="utf-8", errors="ignore")
        if 0 < len(text) < 300_000:
            yield text


def _mixed(path: Path) -> bytes:
    """An order that is the same in each run, and puts files of one folder apart."""
    return hashlib.sha256(str(path).encode()).digest()


def _write(path: Path, size: int) -> Path:
    """JSON lines of about so many bytes, from the same texts in turn."""
    with path.open("wb") as file:
        while file.tell() < size:
            before = file.tell()
            for text in _texts():
                file.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
                if file.tell() >= size:
                    break
            assert file.tell() > before
    return path


def _train(folder: Path, texts: Path, vocab_size: int) -> tuple[Path, Path, Path]:
    """Byte-level BPE as GPT-2's; and the same with two other splits."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer: Any = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator((json.loads(line)["text"] for line in texts.open(encoding="utf-8")), trainer)
    plain, own, odd = (folder / f"{name}.json" for name in ("plain", "own", "odd"))
    tokenizer.save(str(plain))
    for path, pattern in ((own, OWN_SPLIT), (odd, ODD_SPLIT)):
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
        tokenizer.save(str(path))
    return plain, own, odd


def _used(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of CPU time of a program and all that it starts, and its greatest memory in MB."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        peak, ended = 0.0, 0
        while not ended:
            peak = max(peak, _peak(process.pid))
            time.sleep(_LOOKS_EVERY_S)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            output.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed: {output.read()[-2000:].decode()}")
    return usage.ru_utime + usage.ru_stime, peak


def _peak(pid: int) -> float:
    """The greatest memory of a process until now, in MB. `wait4` would count the process that started it, too."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        kilobytes = next((line.split()[1] for line in file if line.startswith("VmHWM:")), "0")
    return int(kilobytes) * 1024 / MB


def _prepare(model: Path, source: Path, prefix: Path) -> tuple[float, float]:
    words = ("--input", str(source), "--output-prefix", str(prefix), "--tokenizer-model", str(model))
    return _used((PRIMUS, "data", "prepare", *words, "--append-eod", "--overwrite", "--workers", "2"))


def _tokens(prefix: Path) -> int:
    return os.path.getsize(f"{prefix}_text_document.bin") // 2


class _Speed(NamedTuple):
    """Two runs, with a little text and with much: MB of text, tokens and CPU seconds of each."""

    little: tuple[int, int, float]
    much: tuple[int, int, float]

    @property
    def rate(self) -> float:
        """Tokens per CPU second, once it is started."""
        return (self.much[1] - self.little[1]) / (self.much[2] - self.little[2])

    def whole(self, size: int) -> float:
        """CPU seconds for so many MB, with the start."""
        tokens = self.much[1] * size / self.much[0]
        return self.little[2] + (tokens - self.little[1]) / self.rate


def _speeds(model: Path, sizes: Sequence[int], folder: Path, repetitions: int) -> Iterator[tuple[_Speed, _Speed]]:
    """Primus with as many MB as the first size, its peer with the second one, and both with the last one."""
    ours, theirs = folder / "ours", folder / "theirs"

    def our(size: int) -> tuple[int, int, float]:
        cpu_s, _ = _prepare(model, folder / f"{size}.jsonl", ours)
        return size, _tokens(ours), cpu_s

    def their(size: int) -> tuple[int, int, float]:
        cpu_s, _ = _used((sys.executable, PEER, str(model), str(folder / f"{size}.jsonl"), str(theirs), "2"))
        return size, _tokens(theirs), cpu_s

    much, medium, start = sizes
    for _ in range(repetitions):
        yield _Speed(our(start), our(much)), _Speed(their(start), their(medium))
    our(medium)
    for end in ("bin", "idx"):
        if not filecmp.cmp(f"{ours}_text_document.{end}", f"{theirs}_text_document.{end}", shallow=False):
            raise RuntimeError(f"Megatron's algorithm writes another .{end}")


def _inspected(prefix: Path) -> float:
    """Seconds to inspect an index of 100 GB; the files are sparse."""
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, LARGE, LARGE + 1))
        size = file.tell() + 12 * LARGE + 8 * (LARGE + 1)
        file.seek(size - 8)
        file.write(struct.pack("<q", LARGE))
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(1000 * MB)
    return _used((PRIMUS, "data", "inspect", str(prefix)))[0]


def rows(*, quick: bool) -> Iterator[Row]:
    """Four speeds, two memories, and a time."""
    sizes, vocab_size, repetitions = ((160, 8, 2, 1), 16_000, 1) if quick else ((320, 32, 16, 1), 50_000, 3)
    large, medium, small, start = sizes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in sizes:
            _write(folder / f"{size}.jsonl", size * MB)
        plain, own, odd = _train(folder, folder / f"{small}.jsonl", vocab_size)
        for what, model, goal, much in (
            ("byte-level BPE", plain, 50, large),
            ("a split that gigatoken does not know", own, 2, medium),
            ("a split that only tokenizers knows", odd, 1, medium),
        ):
            pairs = list(_speeds(model, (much, medium, start), folder, repetitions))
            yield _row(what, [ours.rate / theirs.rate for ours, theirs in pairs], goal)
            if model == plain:
                whole = [theirs.whole(WHOLE) / ours.whole(WHOLE) for ours, theirs in pairs]
                yield _row(f"{what}, {WHOLE} MB with the start", whole, goal)
        yield from _memory(plain, folder, *((16, 64) if quick else (100, 400)))
        seconds = [_inspected(folder / "large") for _ in range(2 * repetitions)]
        yield Row("CPU time of data inspect, an index of 100 GB", "2 s", tuple(one / 2 for one in seconds), 1.0)


def _row(what: str, ratios: Sequence[float], goal: float) -> Row:
    name = f"tokens per CPU second of data prepare, {what}"
    return Row(name, "Megatron's preprocess_data.py", tuple(ratios), goal, at_least=True)


def _memory(model: Path, folder: Path, little: int, much: int) -> Iterator[Row]:
    peaks = [_prepare(model, _write(folder / "in.jsonl", size * MB), folder / "ours")[1] for size in (little, much)]
    yield Row(f"greatest memory of data prepare, {much} MB of text", f"{little} MB", (peaks[1] / peaks[0],), 1.2)
    yield Row(f"greatest memory of data prepare, {much} MB of text", "300 MB", (peaks[1] / 300,), 1.0)
