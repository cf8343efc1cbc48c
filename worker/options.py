"""The `options` of a chunk or a file job: what its producer asks of the worker."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from oasr.decoding.options import DecodingOptions
from worker import decoding_options, endpointing_options
from worker.decoding_options import AskedDecoding
from worker.endpointing_options import AskedEndpointing
from worker.errors import CodecError, ErrorCode

MAX_OPTIONS_BYTES: Final = 16 * 1024

_FLAGS: Final = ("partials", "emit_empty", "lenient", "second_pass")
_TENANT: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_MODEL: Final = re.compile(r"[a-z][a-z0-9]{0,31}", re.ASCII)
_LANGUAGE: Final = re.compile(r"auto|[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}", re.ASCII)
_MOST_NAMED: Final = 8  # of the unknown options of a lenient producer; the others are counted
# What other recognizers take as an option, and where it is to be said here.
_ELSEWHERE: Final = {
    "interim": "partials are asked for with the option partials",
    "interim_results": "partials are asked for with the option partials",
    "priority": "it is a header, or a field beside options",
    "roles": "they are a header, or a field beside options",
}


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options as given; None leaves the choice to the worker's settings."""

    language: str | None = None  # BCP 47 or "auto"; whether the model can is asked at admission
    model: str | None = None  # as the worker's settings name it; set at admission
    tenant: str = ""  # whose share of the engine this is
    partials: bool = True
    endpointing: AskedEndpointing = field(default_factory=AskedEndpointing)
    emit_empty: bool | None = None
    min_stability: float = 0.0  # of the words of a partial
    second_pass: bool = False  # whether the file model is to hear the call again after its end
    second_decoding: DecodingOptions = field(default_factory=DecodingOptions)  # set at admission
    lenient: bool = False  # unknown options become warnings
    asked: AskedDecoding = field(default_factory=AskedDecoding)
    decoding: DecodingOptions = field(
        default_factory=DecodingOptions
    )  # what that comes to; set at admission
    warnings: tuple[str, ...] = ()  # "option_unsupported:<name>", for the transcript records


def parse_options(source: bytes | str | Mapping[str, Any]) -> SessionOptions:
    """Options from JSON text or a decoded object; CodecError names the bad option.

    What concerns endpointing may stand in an object `endpointing`, or beside the others.
    """
    fields = _flat(source if isinstance(source, Mapping) else _load(source))
    lenient = fields.get("lenient", False) is True
    known = {name: value for name, value in fields.items() if name in _PARSERS}
    unknown = sorted(fields.keys() - known.keys())
    if unknown and not lenient:
        raise _unknown(unknown[0])
    values = {name: _PARSERS[name](name, value) for name, value in known.items()}
    asked = {name: values.pop(name) for name in decoding_options.PARSERS.keys() & values.keys()}
    ends = {name: values.pop(name) for name in endpointing_options.PARSERS.keys() & values.keys()}
    return SessionOptions(
        **values,
        endpointing=AskedEndpointing(**ends),
        asked=AskedDecoding(**asked),
        warnings=_unknown_warnings(unknown),
    )


def _unknown(name: str) -> CodecError:
    told = _ELSEWHERE.get(name)
    what = f"this worker has no option {_shown(name)}"
    return CodecError(ErrorCode.OPTION_UNSUPPORTED, what if told is None else f"{what}: {told}")


def _unknown_warnings(names: list[str]) -> tuple[str, ...]:
    told = [_shown(name) for name in names[:_MOST_NAMED]]
    if len(names) > _MOST_NAMED:
        told.append(f"{len(names) - _MOST_NAMED} more")
    return tuple(f"{ErrorCode.OPTION_UNSUPPORTED}:{name}" for name in told)


def _load(text: bytes | str) -> Mapping[str, Any]:
    if len(text) > MAX_OPTIONS_BYTES:
        raise CodecError(
            ErrorCode.HEADER_TOO_LARGE, f"options have more than {MAX_OPTIONS_BYTES} bytes"
        )
    try:
        decoded = orjson.loads(text)
    except ValueError as error:
        raise CodecError(ErrorCode.INVALID_OPTIONS, "options are not JSON") from error
    if not isinstance(decoded, dict):
        raise CodecError(ErrorCode.INVALID_OPTIONS, "options are not a JSON object")
    return decoded


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(fields)
    endpointing = flat.pop("endpointing", None)
    if endpointing is None:
        return flat
    if not isinstance(endpointing, dict):
        raise CodecError(ErrorCode.INVALID_OPTIONS, "option endpointing is not an object")
    for name, value in endpointing.items():
        known = name in endpointing_options.PARSERS
        flat[name if known else f"endpointing.{name}"] = value
    return flat


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise decoding_options.invalid(name, "is neither true nor false")
    return value


def _share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise decoding_options.invalid(name, "is no number of 0 to 1")
    return float(value)


def _language(name: str, value: object) -> str:
    if not isinstance(value, str) or not _LANGUAGE.fullmatch(value):
        raise decoding_options.invalid(name, "is no language tag")
    return value


def _model(name: str, value: object) -> str:
    if not isinstance(value, str) or not _MODEL.fullmatch(value):
        raise decoding_options.invalid(name, "is no name of a model")
    return value


def _tenant(name: str, value: object) -> str:
    if not isinstance(value, str) or not _TENANT.fullmatch(value):
        raise decoding_options.invalid(name, "is no name of 1 to 64 letters, digits, . _ : -")
    return value


def _shown(name: str) -> str:
    """The name of an unknown option, fit for a log line and a header."""
    return re.sub(r"[^A-Za-z0-9_.-]", "?", name[:40], flags=re.ASCII)


_PARSERS: Final[dict[str, Callable[[str, object], Any]]] = {
    "language": _language,
    "min_stability": _share,
    "model": _model,
    "tenant": _tenant,
    **dict.fromkeys(_FLAGS, _flag),
    **endpointing_options.PARSERS,
    **decoding_options.PARSERS,
}
