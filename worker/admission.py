"""What a message's options mean for this worker, and which of them it refuses."""

from __future__ import annotations

from dataclasses import replace

from oasr.audio.segmenter import SegmenterConfig
from worker.errors import CodecError, ErrorCode
from worker.options import SessionOptions

# What the segmenter needs in front of an onset, and between a pause and the longest segment.
_ONSET_MS = 100


def admitted(options: SessionOptions, languages: tuple[str, ...]) -> SessionOptions:
    """The options without what the model cannot honour: refused by name, or, lenient, warned of.

    Raises CodecError `option_unsupported`.
    """
    language = options.language
    if language is None or language.split("-")[0].lower() in languages:
        return options
    if not options.lenient:
        raise CodecError(ErrorCode.OPTION_UNSUPPORTED, "the model does not know the language")
    warning = f"{ErrorCode.OPTION_UNSUPPORTED.value}:language"
    return replace(options, language=None, warnings=(*options.warnings, warning))


def endpointing_of(options: SessionOptions, defaults: SegmenterConfig) -> SegmenterConfig:
    """The worker's endpointing with what the options change; the other times give way to them."""
    asked = (options.min_silence_ms, options.max_utterance_ms, options.no_speech_ms)
    if asked == (None, None, None):
        return defaults
    max_utterance_ms = options.max_utterance_ms or defaults.max_utterance_ms
    longest_ms = max_utterance_ms - _ONSET_MS
    no_speech_ms = min(options.no_speech_ms or defaults.no_speech_ms, longest_ms)
    return replace(
        defaults,
        min_silence_ms=options.min_silence_ms or defaults.min_silence_ms,
        max_utterance_ms=max_utterance_ms,
        no_speech_ms=no_speech_ms,
        pre_roll_ms=min(defaults.pre_roll_ms, no_speech_ms - _ONSET_MS),
        quiet_search_ms=min(defaults.quiet_search_ms, longest_ms),
    )
