"""Split a text into sentences with nltk's Punkt, as Megatron's tool does."""

from __future__ import annotations

from collections.abc import Callable

from primus_core.errors import MachineError, RequestError

__all__ = ["splitter"]

_MOST_CHARACTERS = 1_000_000
"""Megatron's tool gives longer texts to nltk in pieces."""
_WITH_NEWLINES = r"""
    \S*                          # some word material
    %(SentEndChars)s             # a potential sentence ending
    \s*                          # also no space: so line ends between sentences stay
    (?=(?P<after_tok>
        %(NonWord)s              # either other punctuation
        |
        (?P<next_tok>\S+)
    ))"""


def splitter(language: str, *, keep_newlines: bool) -> Callable[[str], list[str]]:
    """What splits texts of a language.

    Raises:
        MachineError: nltk is not installed, or its model of the language.
        RequestError: there is no such language.
    """
    try:
        from nltk.tokenize import punkt
    except ImportError:
        fix = "pip install 'primus-data[sentences]'"
        raise MachineError("Python module 'nltk' not found", why="--split-sentences needs it", fix=fix) from None
    try:
        found = punkt.PunktTokenizer(language)
    except LookupError:
        fix = "python -m nltk.downloader punkt_tab; NLTK_DATA names the folder if it is elsewhere"
        raise MachineError(f"nltk has no sentence model for '{language}' here", fix=fix) from None
    except ValueError:
        raise RequestError(f"--lang {language!r} is not the name of a language", fix="--lang english") from None
    if keep_newlines:
        variables = type("_Variables", (punkt.PunktLanguageVars,), {"_period_context_fmt": _WITH_NEWLINES})
        found = punkt.PunktSentenceTokenizer(found._params, lang_vars=variables())  # noqa: SLF001  # as Megatron does

    def split(text: str) -> list[str]:
        pieces = (text[at : at + _MOST_CHARACTERS] for at in range(0, len(text), _MOST_CHARACTERS))
        return [sentence for piece in pieces for sentence in found.tokenize(piece)]

    return split
