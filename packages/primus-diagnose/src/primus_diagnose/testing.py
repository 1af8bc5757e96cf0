"""What the tests of a package with signatures take: what every signature promises.

    from primus_diagnose.testing import SignatureConformance

    class TestMine(SignatureConformance):
        folder = "src/acme_primus/signatures"

pytest collects the class; it needs nothing else.
"""

from __future__ import annotations

import os
import time
from typing import ClassVar

from primus_diagnose.scan.prefilter import Prefilter
from primus_diagnose.scan.scanner import Scanner
from primus_diagnose.scan.source import Source
from primus_diagnose.signatures import files
from primus_diagnose.signatures.catalogue import OWN, built_in
from primus_diagnose.signatures.signature import Signature, mistakes

__all__ = ["HEALTHY", "SignatureConformance"]

HEALTHY = """\
 [2025-11-23 10:00:00] iteration 10/ 100 | consumed samples: 160 | elapsed time (ms): 1234.5 | lm loss: 7.33E-01 |
 grad norm: 0.752 | number of skipped iterations:   0 | number of nan iterations:   0 |
[titan] 2025-11-23 10:00:00,123 - root - INFO - step: 10  loss:  7.1234  grad_norm:  1.2345  memory:  1.0GiB(0.5%)
completed step: 10, seconds: 1.234, TFLOP/s/device: 312.100, Tokens/s/device: 7000.123, total_weights: 8192, loss: 7.1
node1:3468:3905 [4] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC
node1:3468:3905 [4] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
INFO: loading checkpoint shards: 100%|##########| 4/4 [00:02<00:00,  1.71it/s]
"""
"""Lines of runs that are well."""
_SLOW = ("a" * 4000, " " * 4000, "0" * 4000, "/a" * 2000, "error: " * 600)
_MOST_S = 0.5


class SignatureConformance:
    """What every signature promises."""

    folder: ClassVar[str] = OWN
    """Where the files are."""

    def signatures(self) -> list[Signature]:
        """All of the folder's."""
        names = sorted(name for name in os.listdir(self.folder) if name.endswith(".toml"))
        assert names, f"{self.folder} has no *.toml"
        return [one for name in names for one in files.read(os.path.join(self.folder, name))]

    def test_each_signature_matches_its_samples_and_nothing_else(self) -> None:
        """Its own samples, and not what it says is none."""
        assert {one.id: wrong for one in self.signatures() if (wrong := mistakes(one))} == {}

    def test_the_search_finds_each_sample(self) -> None:
        """The whole way, from the bytes of a log."""
        scanner = Scanner(self.signatures())
        for one in self.signatures():
            for sample in one.samples:
                found = scanner.scan(Source("log", "log", text=f"before\n[rank3]: {sample}\nafter\n"))
                assert one.id in {name for name, *_ in found.tallies}, sample

    def test_no_line_of_a_run_that_is_well_is_found(self) -> None:
        """The healthy lines of several frameworks."""
        found = Scanner(self.signatures()).scan(Source("log", "log", text=HEALTHY))
        assert not found.tallies

    def test_no_pattern_is_slow(self) -> None:
        """Whatever the line: a log may hold anything."""
        for one in self.signatures():
            began = time.process_time()
            for line in _SLOW:
                one.search(line)
            assert time.process_time() - began < _MOST_S, one.id

    def test_ids_are_new(self) -> None:
        """None has the id of one of Primus's own, and each comes once."""
        ids = [one.id for one in self.signatures()]
        own = set() if os.path.samefile(self.folder, OWN) else set(built_in().by_id)
        assert len(ids) == len(set(ids))
        assert not own & set(ids)

    def test_the_patterns_can_be_searched_for_together(self) -> None:
        """RE2 knows all that they need."""
        assert Prefilter(self.signatures()).owners
