"""From lines to an answer: causes before symptoms, the earliest first. `docs/diagnose.md` has the rules in words."""
