"""Which of a worker's models serves a message: the one asked for, or the first that can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from oasr.decoding.options import AUTO_LANGUAGE
from worker.admission import Admission, warned
from worker.decoding_options import AskedDecoding
from worker.errors import CodecError
from worker.options import SessionOptions


@dataclass(frozen=True, slots=True)
class Route:
    """A model as messages can ask for it."""

    name: str  # as the settings name it
    admission: Admission
    reads_calls: bool


class Router:
    """Admission of one lane's messages, each by the model that is to serve it."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        default: str,
        is_live: bool,
        second: str | None = None,
    ) -> None:
        """`routes` by the names that messages may use; `default` serves who asks for none.

        `second` makes second passes; None where there are none.
        """
        self._second = None if second is None else routes[second]
        self._routes = dict(routes)
        self._default = self._routes[default]
        self._is_live = is_live

    def admit(self, options: SessionOptions) -> SessionOptions:
        """The options as their model honours them, with its name as `model`.

        Raises CodecError: `option_unsupported` by name, `invalid_options` for a contradiction.
        Of a lenient producer what is unsupported becomes a warning.
        """
        route, options = self._asked_for(options)
        if route is None:
            route = self._speaking(options.language)
        admitted = replace(route.admission.admit(replace(options, model=None)), model=route.name)
        return self._heard_again(admitted) if admitted.second_pass else admitted

    def _heard_again(self, options: SessionOptions) -> SessionOptions:
        """The options with how their second pass decodes, or without one."""
        what = "this worker has no model for second passes, or hears no calls here"
        if self._second is not None:
            asked = AskedDecoding(words=options.asked.words, confidences=options.asked.confidences)
            try:
                second = self._second.admission.admit(
                    SessionOptions(language=options.language, asked=asked)
                )
            except CodecError as error:
                what = error.message
            else:
                return replace(options, second_decoding=second.decoding)
        options = warned(options, "second_pass", f"option second_pass: {what}")
        return replace(options, second_pass=False)

    def _asked_for(self, options: SessionOptions) -> tuple[Route | None, SessionOptions]:
        if options.model is None:
            return None, options
        route = self._routes.get(options.model)
        if route is not None and (route.reads_calls or not self._is_live):
            return route, options
        what = "this worker has no model of that name"
        if route is not None:
            what = f"the model {options.model} reads recordings alone, no live calls"
        return None, warned(options, "model", f"option model: {what}")

    def _speaking(self, language: str | None) -> Route:
        """The lane's own model, unless the language is another's and not its own."""
        if language is None or language == AUTO_LANGUAGE or self._default.admission.knows(language):
            return self._default
        for route in self._routes.values():
            if (route.reads_calls or not self._is_live) and route.admission.knows(language):
                return route
        return self._default
