"""Whether a schema still keeps the promises of the one that was released, by its structure alone.

Of what comes in, everything that was legal has to stay so. Of what goes out, everything has to be
what a reader of the released schema expects, who ignores fields that it does not know. The check
knows the keywords that our schemas use, and takes a change of any other for a breaking one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_SAME = ("pattern", "format", "uniqueItems", "contentMediaType", "contentEncoding")
_SAID = ("$schema", "$id", "$defs", "title", "description", "examples", "default", "x-grows")
_COMPARED = (
    *("type", "const", "enum", "required", "properties", "patternProperties"),
    *("additionalProperties", "items", "oneOf", "anyOf", "allOf", "if", "then", "else"),
)
KNOWN = frozenset((*_LOWER, *_UPPER, *_SAME, *_SAID, *_COMPARED, "$ref"))


def breaks_of_input(released: Schema, current: Schema) -> list[str]:
    """What producers may send by the released schema and not by the current one."""
    return sorted(set(Comparison(current, released, reading=False).check()))


def breaks_of_output(released: Schema, current: Schema) -> list[str]:
    """What the worker may send by the current schema that readers do not expect."""
    return sorted(set(Comparison(released, current, reading=True).check()))


@dataclass(frozen=True)
class Comparison:
    """Tells where `wide` refuses what `narrow` accepts; `reading`: unknown fields are ignored."""

    wide: Schema
    narrow: Schema
    reading: bool

    def check(self) -> Iterator[str]:
        """The places and kinds of all differences that matter."""
        yield from self._inside(self.wide, self.narrow, "")

    def _inside(self, wide: Any, narrow: Any, at: str) -> Iterator[str]:
        wide, narrow = _resolved(wide, self.wide), _resolved(narrow, self.narrow)
        if wide is True:
            return
        if wide is False or narrow is True or narrow is False:
            if wide != narrow and narrow is not False:
                yield f"{at}: no longer the same"
            return
        for keyword in (wide.keys() | narrow.keys()) - KNOWN:
            if wide.get(keyword) != narrow.get(keyword):
                yield f"{at}: {keyword} is not compared"
        yield from self._values(wide, narrow, at)
        yield from _bounds(wide, narrow, at)
        yield from self._fields(wide, narrow, at)
        if "items" in wide:
            yield from self._inside(wide["items"], narrow.get("items", True), f"{at}[]")
        yield from self._branches(wide, narrow, at)
        yield from self._conditions(wide, narrow, at)

    def _values(self, wide: Schema, narrow: Schema, at: str) -> Iterator[str]:
        listed, said = _listed(wide), _listed(narrow)
        if listed is not None and not (self.reading and wide.get("x-grows")):
            if said is None:
                yield f"{at}: any value"
            else:
                yield from (f"{at}: value {value}" for value in said if value not in listed)
        types, met = _types(wide), _types(narrow)
        if types is not None:
            if met is None:
                yield f"{at}: any type"
            else:
                kinds = types | ({"integer"} if "number" in types else set())
                yield from (f"{at}: type {kind}" for kind in sorted(met - kinds))

    def _fields(self, wide: Schema, narrow: Schema, at: str) -> Iterator[str]:
        there, here = wide.get("properties", {}), narrow.get("properties", {})
        released, current = (there, here) if self.reading else (here, there)
        yield from (f"{at}.{name}: removed" for name in released.keys() - current.keys())
        for name in wide.get("required", ()):
            if name not in narrow.get("required", ()):
                yield f"{at}.{name}: required" if not self.reading else f"{at}.{name}: optional"
        for name in there.keys() & here.keys():
            yield from self._inside(there[name], here[name], f"{at}.{name}")
        if not self.reading:
            rest, other = _rest(wide), _rest(narrow)
            if rest is not True:
                yield from self._inside(rest, other, f"{at}.*")
        elif isinstance(_rest(wide), Mapping):
            yield from self._inside(_rest(wide), _rest(narrow), f"{at}.*")
        if wide.get("patternProperties", {}) != narrow.get("patternProperties", {}):
            yield f"{at}: patternProperties"

    def _branches(self, wide: Schema, narrow: Schema, at: str) -> Iterator[str]:
        for keyword in ("oneOf", "anyOf"):
            there = wide.get(keyword)
            if there is None:
                continue
            for number, branch in enumerate(narrow.get(keyword, [narrow])):
                tries = [list(self._inside(other, branch, "")) for other in there]
                if all(tries):
                    yield f"{at}: {keyword} {number}"

    def _conditions(self, wide: Schema, narrow: Schema, at: str) -> Iterator[str]:
        held = _conditional(narrow)
        for rule in _conditional(wide):
            same = [other for other in held if other.get("if") == rule.get("if")]
            parts = ("then", "else") if "if" in rule else ()
            if not any(
                all(not list(self._inside(rule.get(p, True), o.get(p, True), at)) for p in parts)
                and (parts or o == rule)
                for o in same
            ):
                yield f"{at}: a rule for {rule.get('if', 'all')}"


def _bounds(wide: Schema, narrow: Schema, at: str) -> Iterator[str]:
    said = _listed(narrow)
    for keyword in (*_LOWER, *_UPPER, *_SAME):
        if keyword not in wide or wide[keyword] == narrow.get(keyword):
            continue
        if keyword == "pattern" and said is not None:
            texts = [value for value in said if isinstance(value, str)]
            if all(re.search(wide[keyword], text) for text in texts):
                continue
        tighter = narrow.get(keyword)
        if keyword in _LOWER and tighter is not None and tighter >= wide[keyword]:
            continue
        if keyword in _UPPER and tighter is not None and tighter <= wide[keyword]:
            continue
        yield f"{at}: {keyword}"


def _resolved(schema: Any, root: Schema) -> Any:
    while isinstance(schema, Mapping) and "$ref" in schema:
        path = schema["$ref"].removeprefix("#/").split("/")
        schema = root
        for step in path:
            schema = schema[step]
    return schema


def _listed(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema.get("enum")


def _types(schema: Schema) -> set[str] | None:
    if "type" in schema:
        return {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    listed = _listed(schema)
    return None if listed is None else {names[type(value)] for value in listed}


def _rest(schema: Schema) -> Any:
    return schema.get("additionalProperties", True)


def _conditional(schema: Schema) -> list[Schema]:
    own = [{name: schema[name] for name in ("if", "then", "else") if name in schema}]
    return [rule for rule in (*own, *schema.get("allOf", ())) if rule]
