"""Why did a run fail? `diagnose` reads logs and answers; `read` gives the answer that a failed run left.

from primus_diagnose import diagnose

verdict = diagnose(["output/quickstart"])
print(verdict.cause.title, verdict.cause.first.rank)
"""

from primus_diagnose.diagnosis import FILE, diagnose, read
from primus_diagnose.verdict import Advice, Finding, Hit, Inputs, Missing, Verdict

__all__ = ["FILE", "Advice", "Finding", "Hit", "Inputs", "Missing", "Verdict", "diagnose", "read"]
