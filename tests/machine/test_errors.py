"""Errors that a person sees: all at once, unless one of them makes the others needless."""

from __future__ import annotations

import pytest

from primus_machine.errors import ConfigError, Mistakes, RequestError, SeveralErrors


def test_what_cannot_be_done_at_all_is_the_only_error() -> None:
    mistakes, never = Mistakes(), ConfigError("this stage is not here", where="exp.yaml:9")
    mistakes.add(RequestError("lr is not a number"), never)
    with pytest.raises(SeveralErrors):
        mistakes.refuse()
    never.is_final = True
    with pytest.raises(ConfigError) as caught:
        mistakes.refuse()
    assert caught.value is never
