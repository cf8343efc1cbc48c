"""`oasr transcribe FILE…`: recordings to text on the command line.

Exit status: 0 all done, 1 some file failed (the others are done), 2 wrong usage or no such
model, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import oasr
from oasr.decoding.options import SEARCH_METHODS, TASKS, DecodingOptions, Hotword
from oasr.engine.config import DTYPES, EngineConfig
from oasr.engine.engine import ASREngine
from oasr.engine.family import Capabilities
from oasr.errors import ModelError, OptionError
from oasr.subtitles import FORMATS, Segment, Transcript, clock
from oasr.transcription import FileResult, Transcriber

EXIT_FILE_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
SUFFIXES = {"text": ".txt", "json": ".json", "srt": ".srt", "vtt": ".vtt"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        engine = ASREngine(_config(parser, options))
        return _Run(engine, options, sys.stdout, sys.stderr).transcribe_all()
    except (ModelError, OptionError) as error:
        sys.stderr.write(f"oasr: {error}\n")
        return EXIT_USAGE
    except BrokenPipeError:
        # Whoever read has left; the interpreter must not fail once more as it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FILE_FAILED
    except OSError as error:
        sys.stderr.write(f"oasr: {error}\n")
        return EXIT_FILE_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("oasr: interrupted\n")
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="oasr", description="Speech recognition.")
    parser.add_argument("--version", action="version", version=oasr.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "transcribe",
        help="write what is said in recordings",
        description="Write what is said in recordings of any kind, every channel for itself.",
    )
    add = command.add_argument
    add("files", nargs="+", type=Path, metavar="FILE")
    add("--format", choices=sorted(FORMATS), default="text", help="default: text")
    add("--output-dir", type=Path, metavar="DIR", help="a file for each FILE, not standard output")
    add("--stream", action="store_true", help="decode as live audio and show partial results")
    add(
        "--model",
        type=Path,
        metavar="DIR",
        help="a directory of WeNet or Whisper (CTranslate2); default: the bundled model",
    )
    add("--device", default="cpu", help="a torch device; default: cpu")
    add("--dtype", choices=DTYPES, default="float32", help="default: float32")
    add(
        "--chunk-size",
        type=int,
        metavar="FRAMES",
        help="encoder frames (40 ms) that see each other; default: 16 with --stream, else all",
    )
    add(
        "--left-chunks",
        type=int,
        metavar="N",
        help="chunks before its own that a frame sees; default: -1, all",
    )
    add("--batch-size", type=int, default=8, metavar="N", help="segments per forward; default: 8")
    _add_decoding(command)
    return parser


def _add_decoding(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add(
        "--search",
        choices=SEARCH_METHODS,
        help="default: the model's usual one, or what the options below need",
    )
    add(
        "--beam", type=int, metavar="N", help="readings that a beam keeps; default: the model's own"
    )
    add("--alternatives", type=int, default=1, metavar="N", help="readings of each segment in JSON")
    add("--words", action="store_true", help="times and confidences of words in JSON")
    add(
        "--hotword",
        action="append",
        default=[],
        metavar="PHRASE",
        help="a phrase to prefer; may be given several times",
    )
    add("--language", metavar="TAG", help="of the recordings, or auto; default: as the model finds")
    add("--task", choices=TASKS, default="transcribe", help="translate: into English")
    add("--prompt", default="", metavar="TEXT", help="what may have been said before; for Whisper")
    add("--boost", type=float, default=3.0, metavar="B", help="of hotwords, per word; default: 3")


def _config(parser: argparse.ArgumentParser, options: argparse.Namespace) -> EngineConfig:
    chosen = {
        "chunk_size": options.chunk_size,
        "num_left_chunks": options.left_chunks,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    try:
        torch.empty(0, device=options.device)
    except (RuntimeError, AssertionError):
        parser.error(f"device {options.device!r} is not there")
    try:
        return EngineConfig(
            ckpt_dir=options.model,
            device=options.device,
            dtype=options.dtype,
            max_batch_size=options.batch_size,
            max_wait_time=float("inf"),  # nobody is live: lengths alone choose the batches
            block_size_frames=max(16, options.chunk_size or 0),
            offline_chunk_size=-1 if options.stream else options.chunk_size or -1,
            **given,
        )
    except ValueError as error:
        parser.error(str(error))


def _decoding(options: argparse.Namespace, usual: Capabilities) -> DecodingOptions:
    needs_beam = bool(options.hotword) or options.alternatives > 1
    beam = usual.usual_beam if options.beam is None else options.beam
    return DecodingOptions(
        search=options.search or ("prefix_beam" if needs_beam else usual.searches[0]),
        beam=max(beam, options.alternatives),
        n_best=options.alternatives,
        word_times=options.words,
        confidences=True,
        hotwords=tuple(Hotword(phrase, options.boost) for phrase in options.hotword),
        language=options.language,
        task=options.task,
        initial_prompt=options.prompt,
    )


class _Run:
    """One call of `transcribe`: results in the order of the files, each as soon as it can be."""

    def __init__(
        self, engine: ASREngine, options: argparse.Namespace, out: TextIO, err: TextIO
    ) -> None:
        self._options = options
        self._out = out
        self._err = err
        self._failed = 0
        self._stems = Counter(path.stem for path in options.files)
        self._live = options.stream and options.format == "text" and not options.output_dir
        decoding = _decoding(options, engine.capabilities)
        self._transcriber = Transcriber(
            engine, options.stream, self._show_partial, self._show_segment, decoding
        )
        self._partial_shown = False

    def transcribe_all(self) -> int:
        """Transcribes every file; 0, or EXIT_FILE_FAILED when something of one is missing."""
        if self._options.output_dir:
            self._options.output_dir.mkdir(parents=True, exist_ok=True)
        waiting: list[tuple[Path, FileResult]] = []
        files: list[Path] = self._options.files
        with self._progress(len(files)) as progress:
            for path in files:
                waiting.append((path, self._transcriber.read(path)))
                while waiting and waiting[0][1].is_complete:
                    self._write(*waiting.pop(0))
                    progress.advance()
            self._transcriber.drain()
            for path, result in waiting:
                self._write(path, result)
                progress.advance()
        return EXIT_FILE_FAILED if self._failed else 0

    def _write(self, path: Path, result: FileResult) -> None:
        for warning in result.transcript.warnings:
            self._err.write(f"oasr: {path}: warning: {warning}\n")
        if result.error is not None:
            self._failed += 1
            self._err.write(f"oasr: {path}: {result.error}\n")
            if not result.transcript.channels:
                return
        if self._live:
            return
        document = FORMATS[self._options.format](result.transcript)
        if self._options.output_dir:
            (self._options.output_dir / self._output_name(path)).write_text(
                document, encoding="utf-8"
            )
            return
        if self._options.format == "text" and len(self._options.files) > 1:
            self._out.write(f"== {path}\n")
        self._out.write(document)
        self._out.flush()

    def _output_name(self, path: Path) -> str:
        name = path.stem if self._stems[path.stem] == 1 else path.name
        return name + SUFFIXES[self._options.format]

    def _show_partial(self, _transcript: Transcript, segment: Segment, stable_words: int) -> None:
        self._partial_shown = self._err.isatty()
        if self._partial_shown:
            self._err.write(f"\r\x1b[2K~ {_line(segment, stable_words)}")
        else:
            self._err.write(f"~ {_line(segment)}\n")
        self._err.flush()

    def _show_segment(self, _transcript: Transcript, segment: Segment) -> None:
        if self._partial_shown:
            self._err.write("\r\x1b[2K")
            self._err.flush()
            self._partial_shown = False
        if self._live:
            self._out.write(f"{_line(segment)}\n")
            self._out.flush()

    @contextmanager
    def _progress(self, num_files: int) -> Iterator[_Bar]:
        # Partial results and a bar would overwrite each other.
        if num_files < 2 or self._options.stream:
            yield _Bar(None)
            return
        columns = (
            TextColumn("transcribing"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(file=self._err)) as progress:
            yield _Bar(progress, num_files)


class _Bar:
    """A progress bar over files, or none."""

    def __init__(self, progress: Progress | None, num_files: int = 0) -> None:
        self._progress = progress
        self._task = progress.add_task("files", total=num_files) if progress else None

    def advance(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)


def _line(segment: Segment, stable_words: int | None = None) -> str:
    """The segment for a reader; words after the first `stable_words` are dimmed."""
    text = segment.text
    if stable_words is not None:
        words = text.split()
        stable, rest = " ".join(words[:stable_words]), " ".join(words[stable_words:])
        text = " ".join(filter(None, (stable, rest and f"\x1b[2m{rest}\x1b[22m")))
    times = f"[{clock(segment.start_ms)} --> {clock(segment.end_ms)}]"
    return f"{times} ch{segment.channel} {text}"


if __name__ == "__main__":
    raise SystemExit(main())
