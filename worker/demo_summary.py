"""The table at the demo's end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from oasr.decoding.wer import Wer
from worker.demo_report import Summary


def print_summary(
    console: Console, summary: Summary, elapsed_s: float, problems: Sequence[str]
) -> None:
    """Prints the figures and, if there are any, the reasons why the demo failed."""
    table = Table(title="summary", show_header=False)
    table.add_row("sessions", f"{summary.calls_ended} of {summary.calls} ended")
    table.add_row("files", f"{summary.files_completed} of {summary.files} completed")
    table.add_row("segments", str(summary.segments))
    table.add_row("word error rate, calls", _rate(summary.calls_wer))
    table.add_row("word error rate, files", _rate(summary.files_wer))
    table.add_row("final latency", _latency(summary))
    table.add_row("time", f"{elapsed_s:.0f} s")
    console.print(table)
    for problem in problems:
        console.print(f"FAILED {problem}", style="red", markup=False, highlight=False)
    if not problems:
        console.print("every call and file is complete", style="green")


def _rate(wer: Wer) -> str:
    if not wer.words:
        return "no words"
    return f"{100 * wer.rate:.1f} % ({wer.errors} of {wer.words} words)"


def _latency(summary: Summary) -> str:
    p50, p95 = summary.latency_ms(50), summary.latency_ms(95)
    if p50 is None or p95 is None:
        return "none measured"
    return f"p50 {p50:.0f} ms, p95 {p95:.0f} ms"
