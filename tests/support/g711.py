"""The tables of ITU-T G.711, written out code by code."""

from __future__ import annotations


def mulaw_value(code: int) -> int:
    """ITU-T G.711 tables 2a and 2b, 14-bit values, scaled to 16 bits."""
    inverted = code ^ 0xFF
    segment, interval = (inverted >> 4) & 7, inverted & 15
    value = (2 * interval + 33) * 2**segment - 33
    return 4 * (-value if inverted & 0x80 else value)


def alaw_value(code: int) -> int:
    """ITU-T G.711 tables 1a and 1b, 13-bit values, scaled to 16 bits."""
    toggled = code ^ 0x55
    segment, interval = (toggled >> 4) & 7, toggled & 15
    value = 2 * interval + 1 if segment == 0 else (2 * interval + 33) * 2 ** (segment - 1)
    return 8 * (value if toggled & 0x80 else -value)
