"""What a producer may ask of the endpointing, and what that comes to with the defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from oasr.audio.gates import Vad
from oasr.audio.segmenter import SegmenterConfig
from worker.decoding_options import integer, invalid

_RANGES_MS: Final = MappingProxyType(
    {
        "pre_roll_ms": (0, 2_000),
        "min_silence_ms": (100, 10_000),
        "max_utterance_ms": (1_000, 60_000),
        "no_speech_ms": (500, 30_000),
        "quiet_search_ms": (200, 30_000),
    }
)
# What the segmenter needs in front of an onset, and between a pause and the longest segment.
_ONSET_MS: Final = 100


@dataclass(frozen=True, slots=True)
class AskedEndpointing:
    """Options as given; None leaves the choice to the worker's settings."""

    pre_roll_ms: int | None = None
    min_silence_ms: int | None = None
    max_utterance_ms: int | None = None
    no_speech_ms: int | None = None
    quiet_search_ms: int | None = None
    gate: bool | None = None
    vad: Vad | None = None

    def over(self, defaults: SegmenterConfig) -> SegmenterConfig:
        """What is asked for, and the defaults with it.

        Of times that do not fit together, `no_speech_ms` and `quiet_search_ms` give way to
        `max_utterance_ms`, and `pre_roll_ms` to `no_speech_ms`.
        """
        if self == _NOTHING:
            return defaults
        asked = {name: getattr(self, name) for name in PARSERS}
        config = {name: value for name, value in asked.items() if value is not None}
        longest_ms = config.get("max_utterance_ms", defaults.max_utterance_ms) - _ONSET_MS
        no_speech_ms = min(config.get("no_speech_ms", defaults.no_speech_ms), longest_ms)
        pre_roll_ms = config.get("pre_roll_ms", defaults.pre_roll_ms)
        quiet_search_ms = config.get("quiet_search_ms", defaults.quiet_search_ms)
        config["no_speech_ms"] = no_speech_ms
        config["pre_roll_ms"] = min(pre_roll_ms, no_speech_ms - _ONSET_MS)
        config["quiet_search_ms"] = min(quiet_search_ms, longest_ms)
        return replace(defaults, **config)


_NOTHING: Final = AskedEndpointing()


def _milliseconds(name: str, value: object) -> int:
    return integer(name, value, *_RANGES_MS[name])


def _gate(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise invalid(name, "is neither true nor false")
    return value


def _vad(name: str, value: object) -> Vad:
    for vad in Vad:
        if vad == value:
            return vad
    raise invalid(name, f"is none of {', '.join(Vad)}")


PARSERS: Final[Mapping[str, Callable[[str, object], Any]]] = MappingProxyType(
    {**dict.fromkeys(_RANGES_MS, _milliseconds), "gate": _gate, "vad": _vad}
)
