"""Data from outside as dataclasses, checked by pydantic's engine: no unknown keys, and nothing is converted.

The engine alone, `pydantic_core`: the package around it adds 70 ms to every dry run that reads an experiment, a third
of it for the metadata of all installed packages, among which it looks for plugins of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic_core import CoreConfig, CoreSchema, SchemaValidator, ValidationError, core_schema

__all__ = ["ValidationError", "keys", "read"]

T = TypeVar("T")

_PLAIN: dict[Any, CoreSchema] = {
    Any: core_schema.any_schema(),
    str: core_schema.str_schema(),
    int: core_schema.int_schema(),
    float: core_schema.float_schema(),
    bool: core_schema.bool_schema(),
}


def read(kind: type[T], data: Any) -> T:
    """`data` as the dataclass `kind`; values of its fields that are mappings, as the dataclasses that these name.

    Raises:
        ValidationError: what is wrong, all of it.
    """
    return cast("T", _validator(kind).validate_python(data))  # type: ignore[arg-type]  # mypy: a class has no hash


def keys(kind: Any) -> list[str]:
    """What `kind` takes, sorted."""
    return sorted(field.name for field in fields(kind))


@cache
def _validator(kind: Any) -> SchemaValidator:
    return SchemaValidator(_of_class(kind))


def _of_class(kind: Any) -> CoreSchema:
    hints = get_type_hints(kind, include_extras=True)
    known = {
        field.name: core_schema.typed_dict_field(_of(hints[field.name]), required=_is_required(field))
        for field in fields(kind)
    }
    # the engine ignores the validator's own config within a typed dict
    whole = core_schema.typed_dict_schema(known, extra_behavior="forbid", config=CoreConfig(strict=True))
    return core_schema.no_info_after_validator_function(lambda found: kind(**found), whole)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _of(hint: Any) -> CoreSchema:
    """What a field takes. Pairs in `Annotated` are bounds, as the engine calls them: `("gt", 0)`."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    generic = _GENERIC.get(get_origin(hint))
    return generic(get_args(hint)) if generic else _of_class(hint)


def _of_union(args: tuple[Any, ...]) -> CoreSchema:
    some = [_of(one) for one in args if one is not NoneType]
    whole = core_schema.union_schema([*some]) if len(some) > 1 else some[0]
    return core_schema.nullable_schema(whole) if NoneType in args else whole


_GENERIC: dict[Any, Callable[[tuple[Any, ...]], CoreSchema]] = {
    Annotated: lambda args: cast("CoreSchema", {**_of(args[0]), **dict(args[1:])}),
    Literal: lambda args: core_schema.literal_schema([*args]),
    Union: _of_union,
    UnionType: _of_union,
    dict: lambda args: core_schema.dict_schema(*map(_of, args)),
    list: lambda args: core_schema.list_schema(_of(args[0])),
}
