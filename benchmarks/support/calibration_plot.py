"""Confidence against accuracy as a picture in SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

SIDE, LEFT, TOP, BOTTOM = 320, 56, 34, 46  # pixels
COLOURS = ("#1f6fb2", "#c8502a", "#3b8a4b")
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
Z = 1.96  # 95 % of a normal distribution


class Series(NamedTuple):
    """One curve; its rows have `stated`, `right` and `count`."""

    name: str
    rows: Sequence[dict[str, float]]


def interval(right: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    middle = right + Z * Z / (2 * count)
    spread = Z * math.sqrt(right * (1 - right) / count + Z * Z / (4 * count * count))
    scale = 1 + Z * Z / count
    return (middle - spread) / scale, (middle + spread) / scale


def draw(series: Sequence[Series]) -> str:
    """The picture: a point for each row with its 95 % interval, beside the diagonal."""
    width, height = LEFT + SIDE + 24, TOP + SIDE + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_frame(),
    ]
    for number, (one, colour) in enumerate(zip(series, COLOURS, strict=False)):
        parts += _curve(one, colour, (number - (len(series) - 1) / 2) * 5)
        x = LEFT + 8 + 150 * number
        parts.append(f'<circle cx="{x}" cy="{TOP - 14}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 10}" y="{TOP - 10}" fill="#222222">{one.name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(share: float) -> float:
    return LEFT + share * SIDE


def _y(share: float) -> float:
    return TOP + (1 - share) * SIDE


def _frame() -> Iterator[str]:
    for tick in TICKS:
        x, y = _x(tick), _y(tick)
        yield f'<path d="M{x} {TOP}V{TOP + SIDE}M{LEFT} {y}H{LEFT + SIDE}" stroke="#e2e2e2"/>'
        yield f'<text x="{x}" y="{TOP + SIDE + 16}" text-anchor="middle">{tick:g}</text>'
        yield f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{tick:g}</text>'
    yield f'<path d="M{_x(0)} {_y(0)}L{_x(1)} {_y(1)}" stroke="#888888" stroke-dasharray="4 4"/>'
    yield (
        f'<text x="{_x(0.5)}" y="{TOP + SIDE + 36}" text-anchor="middle">'
        "mean confidence of the words</text>"
    )
    yield (
        f'<text transform="translate(16 {_y(0.5)}) rotate(-90)" text-anchor="middle">'
        "share of them that is right</text>"
    )


def _curve(series: Series, colour: str, shift: float) -> Iterator[str]:
    points = " ".join(f"{_x(r['stated']) + shift:.1f},{_y(r['right']):.1f}" for r in series.rows)
    yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-opacity="0.4"/>'
    for row in series.rows:
        x, (low, high) = _x(row["stated"]) + shift, interval(row["right"], row["count"])
        yield f'<path d="M{x:.1f} {_y(low):.1f}V{_y(high):.1f}" stroke="{colour}"/>'
        yield f'<circle cx="{x:.1f}" cy="{_y(row["right"]):.1f}" r="3.5" fill="{colour}"/>'
