"""Reads a mapping of `train.yaml` key by key, so that no key is passed over in silence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oasr.errors import ModelError


class Section:
    """One mapping whose every key has to be read, or ignored by name, before `close`."""

    def __init__(self, values: object, path: str = "") -> None:
        """`path` is the dotted place of the mapping, for messages. None counts as empty."""
        if not isinstance(values, Mapping | None):
            raise ModelError(f"train.yaml: {path or 'the file'} is not a mapping")
        self._values: dict[str, Any] = {str(key): value for key, value in (values or {}).items()}
        self._path = path
        self._unread = set(self._values)

    def section(self, key: str) -> Section:
        """The mapping under `key`, empty if absent."""
        return Section(self._take(key, None), self._name(key))

    def integer(self, key: str, default: int, least: int = 1) -> int:
        """A whole number of at least `least`."""
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ModelError(f"train.yaml: {self._name(key)}: {value!r} is no number >= {least}")
        return value

    def number(self, key: str, default: float) -> float:
        """A number."""
        value = self._take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ModelError(f"train.yaml: {self._name(key)}: {value!r} is no number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise ModelError(f"train.yaml: {self._name(key)}: {value!r} is neither true nor false")
        return value

    def text(self, key: str, default: str | None) -> str | None:
        """A string, or None."""
        value = self._take(key, default)
        if not isinstance(value, str | None):
            raise ModelError(f"train.yaml: {self._name(key)}: {value!r} is no string")
        return value

    def ids(self, key: str) -> dict[str, int]:
        """The mapping of names to token ids under `key`, which is read as a whole."""
        value = self._take(key, None) or {}
        if not isinstance(value, Mapping):
            raise ModelError(f"train.yaml: {self._name(key)} is not a mapping")
        found = Section(value, self._name(key))
        return {str(name): found.integer(str(name), 0, least=0) for name in value}

    def choice(self, key: str, default: str, allowed: Iterable[str]) -> str:
        """One of the names in `allowed`; any other value is refused by name."""
        value = self._take(key, default)
        choices = tuple(allowed)
        if value not in choices:
            raise ModelError(
                f"train.yaml: {self._name(key)}: {value!r} is not supported"
                f" (supported: {', '.join(choices)})"
            )
        return str(value)

    def fixed(self, key: str, only: object) -> None:
        """Refuse the key by name unless it is absent or has the one supported value."""
        value = self._take(key, only)
        if value != only or isinstance(value, bool) != isinstance(only, bool):
            raise ModelError(
                f"train.yaml: {self._name(key)}: {value!r} is not supported (only {only!r})"
            )

    def ignore(
        self, keys: tuple[str, ...], prefixes: tuple[str, ...] = (), suffixes: tuple[str, ...] = ()
    ) -> None:
        """Accept keys that do not change what the network computes."""
        self._unread = {
            key
            for key in self._unread
            if key not in keys and not key.startswith(prefixes) and not key.endswith(suffixes)
        }

    def close(self) -> None:
        """ModelError that names the keys nobody read."""
        if self._unread:
            names = ", ".join(sorted(self._name(key) for key in self._unread))
            raise ModelError(f"train.yaml: unknown key: {names}")

    def _take(self, key: str, default: Any) -> Any:
        self._unread.discard(key)
        return self._values.get(key, default)

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key
