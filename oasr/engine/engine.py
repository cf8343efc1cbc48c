"""The engine: streams and whole utterances through one model, one `step()` at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.profiler import record_function

from oasr.decoding.options import DecodingOptions
from oasr.engine.config import EngineConfig
from oasr.engine.families import load_family
from oasr.engine.family import Capabilities, ModelFamily
from oasr.engine.input_processor import Samples
from oasr.engine.isolation import ErrorStage, aborted_output, failed_output, run_alone
from oasr.engine.preemption import Preemption
from oasr.engine.request import Request, RequestOutput, RequestState
from oasr.engine.scheduler import Scheduler
from oasr.engine.stats import StepStats
from oasr.models.registry import LoadedModel, ModelInfo


class ASREngine:
    """Accepts requests and audio, and decodes when `step()` is called.

    Every accepted id ends in exactly one output that is `finished`. One thread owns it.
    """

    def __init__(self, config: EngineConfig, loaded: LoadedModel | None = None) -> None:
        """Loads `config.ckpt_dir`, or takes a model already `loaded` for its device and dtype."""
        self.config = config
        self._family: ModelFamily = load_family(config, loaded)
        self._streams = self._family.streams
        self.stats = StepStats()
        self._scheduler = Scheduler(config)
        self._preemption = Preemption(self._scheduler, config)
        self._micro_batches: deque[list[Request]] = deque()  # scheduled and not yet forwarded
        self._in_flight: dict[str, Request] = {}  # the requests of `_micro_batches`
        self._aborted: list[RequestOutput] = []  # not yet returned by a step

    @property
    def model_info(self) -> ModelInfo:
        """Names the model."""
        return self._family.info

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do."""
        return self._family.capabilities

    @property
    def has_work(self) -> bool:
        """True when a step would do something now.

        That is a stream with a full window or its end, an utterance, or an abort to report.
        An utterance that waits for a preferred batch size counts; it waits `max_wait_time` at most.
        """
        return bool(
            self._aborted
            or self._micro_batches
            or self._scheduler.num_waiting_offline
            or self._preemption.has_ready
        )

    def runnable_samples(self) -> dict[str, int]:
        """The undecoded 16 kHz samples of each stream that a step could advance."""
        found = {}
        for request_id in self._preemption.ready:
            request = self._scheduler.find_request(request_id)
            if request is not None:
                is_open = request.stream_context is not None
                taken = self._streams.undecoded_samples(request) if is_open else 0
                found[request_id] = request.queued_samples + taken
        return found

    def check_decoding(self, decoding: DecodingOptions) -> None:
        """OptionError, whose code is the option's name, for what the model cannot do."""
        self._family.check_decoding(decoding)

    @property
    def portable_check(self) -> Callable[[DecodingOptions], None]:
        """`check_decoding` without the model, so that another process can ask."""
        return self._family.portable_check

    def add_streaming_request(
        self,
        request_id: str | None = None,
        priority: int = 0,
        decoding: DecodingOptions | None = None,
        tenant: str = "",
    ) -> str:
        """Opens a stream and returns its id.

        Raises OptionError where the model cannot stream, or not in chunks of `chunk_size`, or
        cannot do what `decoding` asks for; ValueError for an id that is in use.
        """
        self._streams.check()
        request = Request(
            request_id=request_id, streaming=True, priority=priority, decoding=decoding
        )
        request.tenant = tenant
        return self._add(request)

    def add_request(self, request: Request) -> str:
        """Queues a whole utterance, 1-D float32 at 16 kHz, and returns its id.

        Raises OptionError for another sample rate, and where the model cannot decode in chunks
        of `offline_chunk_size` or as `decoding` asks; ValueError for an id that is in use.
        """
        self._family.check_utterance(request)
        if request.audio is not None:
            request.audio = np.asarray(request.audio, dtype=np.float32)
        request.num_frames = self._family.cost_frames(request)
        return self._add(request)

    def feed_chunk(
        self,
        request_id: str,
        samples: Samples,
        is_last: bool = False,
        keep_samples: int | None = None,
    ) -> None:
        """Appends samples (N,), 16 kHz in [−1, 1), any number of them, to a stream.

        `keep_samples` comes with the last chunk: tokens emitted at or after that sample are
        dropped. Raises KeyError for a stream that is unknown or finished, ValueError after the
        last chunk.
        """
        request = self._scheduler.find_request(request_id)
        if request is None or not request.streaming:
            raise KeyError(f"unknown or finished stream {request_id!r}")
        if keep_samples is not None and not is_last:
            raise ValueError("keep_samples comes with the last chunk")
        request.push_audio(np.array(samples, dtype=np.float32).reshape(-1), is_last)
        request.keep_samples = keep_samples
        if self._streams.has_work(request):
            self._preemption.mark_ready(request_id)
            if request.state is RequestState.PARKED:
                self._scheduler.unpark(request_id)

    def abort_request(self, request_id: str) -> bool:
        """Drops a request; the next step reports it. False for an id that is not open."""
        request = self._scheduler.abort_request(request_id)
        if request is None:
            request = self._in_flight.pop(request_id, None)
            if request is None:
                return False
            request.move_to(RequestState.ABORTED)
        decoded_samples = 0
        if request.stream_context is not None:
            decoded_samples = self._streams.decoded_samples(request)
            self._streams.close(request)
        self._preemption.mark_served(request_id, has_more=False)
        self._aborted.append(aborted_output(request, decoded_samples))
        return True

    def step(self) -> list[RequestOutput]:
        """One decision of the scheduler, carried out: streams first, then an offline batch."""
        started_s = time.perf_counter()
        stats = StepStats(aborted=len(self._aborted))
        outputs, self._aborted = self._aborted, []
        with record_function("engine.step"), torch.inference_mode():
            with record_function("schedule"):
                self._preemption.make_room()
                decision = self._scheduler.schedule()
            stats.admitted = len(decision.newly_admitted)
            spoken = self._open_streams(decision.newly_admitted)
            lost = {output.request_id for output in spoken}
            running = [r for r in decision.running_streams if r.request_id not in lost]
            spoken += self._streams.run(running, stats)
            self._settle_streams(spoken, decision.running_streams)
            self._queue_offline(decision.offline_batch)
            outputs += spoken
            outputs += self._run_offline(bool(decision.running_streams), stats)
        self._count(stats, outputs, time.perf_counter() - started_s)
        return outputs

    def run(self) -> list[RequestOutput]:
        """Steps until there is nothing left to do; streams that are not ended stay open."""
        outputs: list[RequestOutput] = []
        while self.has_work:
            outputs += self.step()
        return outputs

    def transcribe(
        self, utterances: Sequence[Samples], decoding: DecodingOptions | None = None
    ) -> list[RequestOutput]:
        """Decodes whole utterances; results in the order given.

        Outputs of other requests that end meanwhile are lost: meant for an engine of one's own.
        """
        ids = [self.add_request(Request(audio, decoding=decoding)) for audio in utterances]
        finished = {o.request_id: o for o in self.run() if o.finished}
        return [finished[request_id] for request_id in ids]

    def _add(self, request: Request) -> str:
        if request.request_id in self._in_flight:
            raise ValueError(f"request id {request.request_id!r} is in use")
        self.check_decoding(request.decoding)
        self._scheduler.add_request(request)
        return request.request_id

    def _open_streams(self, admitted: Sequence[Request]) -> list[RequestOutput]:
        """Decode state for the streams that have none yet; outputs of those that cannot have it."""
        failed = []
        for request in admitted:
            if request.stream_context is None:  # else it was parked
                run_alone(ErrorStage.DECODE, self._streams.open, request)
                if request.stream_context is None:
                    failed.append(failed_output(request, ErrorStage.DECODE))
        return failed

    def _settle_streams(self, outputs: Sequence[RequestOutput], running: Sequence[Request]) -> None:
        """Lets go of the streams that are finished, and says which have more to decode."""
        finished = {output.request_id for output in outputs if output.finished}
        for request in running:
            ends = request.request_id in finished
            if ends:
                self._scheduler.finish_request(request.request_id)
                if request.stream_context is not None:
                    self._streams.close(request)
            has_more = not ends and self._streams.has_work(request)
            self._preemption.mark_served(request.request_id, has_more)

    def _queue_offline(self, batch: list[Request]) -> None:
        if not batch:
            return
        micro_batches, _ = self._scheduler.split_offline_batch(batch)
        self._micro_batches.extend(micro_batches)
        self._in_flight.update((request.request_id, request) for request in batch)

    def _run_offline(self, has_streams: bool, stats: StepStats) -> list[RequestOutput]:
        """One micro-batch while streams run, so that none of them waits for more; else all.

        With `one_forward_per_step` it is always one.
        """
        outputs: list[RequestOutput] = []
        while self._micro_batches:
            micro_batch = self._micro_batches.popleft()
            live = [r for r in micro_batch if r.request_id in self._in_flight]
            if live:
                outputs += self._family.decode(live, stats)
                for request in live:
                    del self._in_flight[request.request_id]
                    request.move_to(RequestState.FINISHED)
                if has_streams or self.config.one_forward_per_step:
                    break
        return outputs

    def _count(self, stats: StepStats, outputs: Sequence[RequestOutput], step_s: float) -> None:
        stats.finished = sum(output.finish_reason == "stop" for output in outputs)
        stats.near_ties = sum(output.near_tie for output in outputs)
        stats.failed = sum(output.finish_reason == "error" for output in outputs)
        stats.running = self._scheduler.num_running
        stats.waiting = self._scheduler.num_waiting
        stats.parked = self._scheduler.num_parked
        self._streams.measure(stats)
        stats.step_s = step_s
        self.stats = stats
