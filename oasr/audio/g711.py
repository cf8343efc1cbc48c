"""G.711 companding as table look-ups, bit exact to ITU-T G.711 on 16-bit samples.

Silence is 0xFF in µ-law and 0xD5 in A-law; a zero byte is a full-scale click in the one and a
quiet one in the other, so gaps are filled after decoding and never before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int16Array = npt.NDArray[np.int16]
UInt8Array = npt.NDArray[np.uint8]

_MULAW_BIAS = 132  # makes every µ-law segment begin at a power of two
_MULAW_CLIP = 32767 - _MULAW_BIAS


def _mulaw_decoding_table() -> Int16Array:
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    exponent, mantissa = (code >> 4) & 7, code & 15
    magnitude = (((mantissa << 3) + _MULAW_BIAS) << exponent) - _MULAW_BIAS
    table: Int16Array = np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)
    return table


def _alaw_decoding_table() -> Int16Array:
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent, mantissa = (code >> 4) & 7, code & 15
    # The two lowest segments share a step size; all but the lowest have an implied leading one.
    step = (mantissa << 4) + 8 + np.where(exponent > 0, 256, 0)
    magnitude = step << np.maximum(exponent - 1, 0)
    table: Int16Array = np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)
    return table


def _mulaw_encoding_table() -> UInt8Array:
    linear = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int32)
    biased = np.minimum(np.abs(linear), _MULAW_CLIP) + _MULAW_BIAS
    exponent = _bit_length(biased) - 8
    mantissa = (biased >> (exponent + 3)) & 15
    sign = np.where(linear < 0, 0x80, 0)
    table: UInt8Array = (~(sign | (exponent << 4) | mantissa) & 0xFF).astype(np.uint8)
    return table


def _alaw_encoding_table() -> UInt8Array:
    linear = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int32)
    magnitude = np.minimum(np.abs(linear), 32767)
    exponent = np.maximum(_bit_length(magnitude) - 8, 0)
    mantissa = (magnitude >> np.maximum(exponent + 3, 4)) & 15
    sign = np.where(linear < 0, 0, 0x80)
    table: UInt8Array = ((sign | (exponent << 4) | mantissa) ^ 0x55).astype(np.uint8)
    return table


def _bit_length(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    # frexp is exact here: the values fit a double's mantissa.
    return np.frexp(values.astype(np.float64))[1]


_MULAW_DECODING = _mulaw_decoding_table()
_ALAW_DECODING = _alaw_decoding_table()
_MULAW_ENCODING = _mulaw_encoding_table()
_ALAW_ENCODING = _alaw_encoding_table()
for _table in (_MULAW_DECODING, _ALAW_DECODING, _MULAW_ENCODING, _ALAW_ENCODING):
    _table.flags.writeable = False


def mulaw_to_linear(data: bytes | bytearray | memoryview) -> Int16Array:
    """Decode µ-law bytes to as many int16 samples."""
    return _MULAW_DECODING.take(np.frombuffer(data, dtype=np.uint8))


def alaw_to_linear(data: bytes | bytearray | memoryview) -> Int16Array:
    """Decode A-law bytes to as many int16 samples."""
    return _ALAW_DECODING.take(np.frombuffer(data, dtype=np.uint8))


def linear_to_mulaw(samples: Int16Array) -> bytes:
    """Encode int16 samples to one µ-law byte each, by the decision values of G.711."""
    return _MULAW_ENCODING.take(samples.astype(np.int16, copy=False).view(np.uint16)).tobytes()


def linear_to_alaw(samples: Int16Array) -> bytes:
    """Encode int16 samples to one A-law byte each, by the decision values of G.711."""
    return _ALAW_ENCODING.take(samples.astype(np.int16, copy=False).view(np.uint16)).tobytes()
