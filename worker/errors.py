"""The closed list of codes with which the worker refuses a message or reports a failure."""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """What is wrong with a message; on the wire in `error.code` of a dead letter."""

    description: str

    def __new__(cls, code: str, description: str) -> ErrorCode:
        member = str.__new__(cls, code)
        member._value_ = code
        member.description = description
        return member

    KEY_REQUIRED = "key_required", "The message has no key, so it belongs to no session or file."
    KEY_INVALID = (
        "key_invalid",
        "The key is not 1 to 256 bytes of UTF-8 without control characters.",
    )
    VALUE_TOO_LARGE = "value_too_large", "The value is larger than `audio.max_value_bytes`."
    HEADER_TOO_LARGE = (
        "header_too_large",
        "A header has more than 1 KiB, or `options` more than 16 KiB.",
    )
    INVALID_HEADER = (
        "invalid_header",
        "A header, or the field of an envelope of the same name, has no legal value.",
    )
    INVALID_ENVELOPE = (
        "invalid_envelope",
        "The JSON value is no message of its `content-type`, or its audio is no base64.",
    )
    ENCODING_REQUIRED = (
        "encoding_required",
        "The message names no encoding and the worker has no default.",
    )
    ENCODING_UNSUPPORTED = "encoding_unsupported", "The encoding or media type is not one we read."
    SAMPLE_RATE_REQUIRED = (
        "sample_rate_required",
        "The message names no sample rate and the worker has no default.",
    )
    INVALID_OPTIONS = (
        "invalid_options",
        "`options` is no JSON object, or an option has a wrong type or is out of range.",
    )
    OPTION_UNSUPPORTED = (
        "option_unsupported",
        "An option is unknown, or the model cannot honour it.",
    )
    ODD_BYTES = "odd_bytes", "The audio of a session ends inside a sample frame."
    ENCODING_SUSPECT = (
        "encoding_suspect",
        "The audio of a segment is noise as it is declared, and sound in the encoding named.",
    )
    SAMPLE_RATE_SUSPECT = (
        "sample_rate_suspect",
        "The media times of the messages of a segment are not those of its sample rate.",
    )
    INVALID_FILE_JOB = "invalid_file_job", "The value of a file message is no legal file job."
    CONTAINER_INVALID = "container_invalid", "The file is no recording that can be decoded."
    AUDIO_TOO_LONG = "audio_too_long", "The file is longer than `files.max_duration_s`."
    DECODE_TIMEOUT = (
        "decode_timeout",
        "Decoding took longer than `files.decode_timeout_s`, or stood still.",
    )
    DECODE_MEMORY = "decode_memory", "Decoding takes more memory than `files.max_memory_bytes`."
    URI_FORBIDDEN = (
        "uri_forbidden",
        "The URI has a scheme we do not fetch, or lies outside what `files.*` allows.",
    )
    FETCH_FAILED = "fetch_failed", "The file behind the URI is not there, or may not be read."
    FETCH_UNAVAILABLE = (
        "fetch_unavailable",
        "The file could not be fetched within `files.fetch_timeout_s`; a later attempt may help.",
    )
    SIZE_MISMATCH = "size_mismatch", "The file does not have the stated `size_bytes`."
    HASH_MISMATCH = "hash_mismatch", "The file does not have the stated `sha256`."
    ENGINE_FAILED = "engine_failed", "The engine failed on this audio."
    SESSION_LIMIT = (
        "session_limit",
        "More sessions are open on the partition than `sessions.max_open` allows.",
    )
    SECOND_PASS_IMPOSSIBLE = (
        "second_pass_impossible",
        "A call was to be heard a second time, but its audio is too much, or went with its worker.",
    )
    CRASHED_WORKER = (
        "crashed_worker",
        "This audio, or the reading of this file, ended a process of the worker twice.",
    )


class CodecError(Exception):
    """A message that the worker refuses: dead letter with `code`, go on with the next.

    The message never quotes the payload.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
