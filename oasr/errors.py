"""Errors of the engine, split by what the caller should do.

OasrError
├── AudioError(code)     the audio is bad: report `code`, go on with the next
├── OptionError(code)    a request asks for what the model cannot do: refuse it
├── ModelError           the model directory is unusable: do not start
└── IllegalTransition    a bug: crash
"""


class OasrError(Exception):
    """Root of all errors raised on purpose by `oasr`."""


class AudioError(OasrError):
    """Audio that cannot be decoded; `code` is machine-readable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class OptionError(OasrError):
    """A request option that the model cannot honour; `code` is machine-readable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ModelError(OasrError):
    """A model directory that cannot be served; the message names keys or weights."""


class IllegalTransition(OasrError):
    """A request state change that the table of edges does not allow."""
