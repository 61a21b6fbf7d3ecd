"""The field types of request bodies. Each type of text, list and mapping has a limit, and the OpenAPI document names
the limit."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Query
from pydantic import PlainValidator, WithJsonSchema
from starlette.requests import HTTPConnection

from danlu.domain.texts import (
    LONGEST_ARRAY,
    LONGEST_PATH,
    LONGEST_START,
    LONGEST_TEXT,
    MOST_AFTER,
    check_text,
    trouble_with,
)
from danlu.errors import Invalid

MOST_WORDS = LONGEST_START // 9  # per word the kernel passes a NUL byte and a pointer
MOST_QUERIES = 100


def _text(most: int) -> Callable[[Any], str]:
    # Pydantic's own str refuses lone surrogates, the form in which non-UTF-8 arguments travel.
    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("must be a text")
        if trouble := trouble_with(value, most):
            raise ValueError(trouble)
        return value

    return read


def _texts(count: int, most: int) -> Callable[[Any], tuple[str, ...]]:
    read = _text(most)

    def read_all(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise ValueError("must be a list of texts")
        if len(value) > count:
            raise ValueError(f"has {len(value):,} entries, at most {count:,} are possible")
        return tuple(read(item) for item in value)

    return read_all


def _pairs(value: Any) -> dict[str, str]:
    if isinstance(value, list):
        value = dict(item.partition("=")[::2] for item in _words(value))
    if not isinstance(value, dict):
        raise ValueError("must map names to texts")
    names = _words(list(value))
    return dict(zip(names, _words(list(value.values())), strict=True))


def _written(value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("must be a text or a whole number")
    return _text(LONGEST_ARRAY)(value) if isinstance(value, str) else value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def string(most: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": most}


def _array(count: int, items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "maxItems": count, "items": items}


_words = _texts(MOST_WORDS, LONGEST_START)
_WORD = string(LONGEST_START)
_MAPPING = {"type": "object", "maxProperties": MOST_WORDS, "additionalProperties": _WORD}

Text = Annotated[str, PlainValidator(_text(LONGEST_TEXT)), WithJsonSchema(string(LONGEST_TEXT))]
Folder = Annotated[str, PlainValidator(_text(LONGEST_PATH)), WithJsonSchema(string(LONGEST_PATH))]
Written = Annotated[
    str | int, PlainValidator(_written), WithJsonSchema({"anyOf": [string(LONGEST_ARRAY), {"type": "integer"}]})
]
Flag = Annotated[bool, PlainValidator(_flag), WithJsonSchema({"type": "boolean"})]
Texts = Annotated[
    tuple[str, ...],
    PlainValidator(_texts(MOST_AFTER, LONGEST_TEXT)),
    WithJsonSchema(_array(MOST_AFTER, string(LONGEST_TEXT))),
]
Words = Annotated[tuple[str, ...], PlainValidator(_words), WithJsonSchema(_array(MOST_WORDS, _WORD))]
Pairs = Annotated[dict[str, str], PlainValidator(_pairs), WithJsonSchema(_MAPPING)]

# The start of the next page, within the integer range of the database.
Cursor = Annotated[int | None, Query(ge=0, lt=2**63)]


async def check_address(connection: HTTPConnection) -> None:
    """Refuse a request with an overlong text in its path or query; each route depends on this function."""
    if connection.scope["type"] != "http":
        return
    asked = connection.query_params.multi_items()
    if len(asked) > MOST_QUERIES:
        raise Invalid(f"the query has {len(asked):,} values, at most {MOST_QUERIES} are possible")
    for name, value in (*connection.path_params.items(), *asked):
        check_text(str(value), f"`{name[:40]}`", LONGEST_PATH)
