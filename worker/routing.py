"""Which of a worker's models serves a message: the one asked for, or the first that can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from worker.admission import AUTO_LANGUAGE, Admission
from worker.errors import CodecError, ErrorCode
from worker.options import SessionOptions


@dataclass(frozen=True, slots=True)
class Route:
    """A model as messages can ask for it."""

    name: str  # as the settings name it
    admission: Admission
    reads_calls: bool


class Router:
    """Admission of one lane's messages, each by the model that is to serve it."""

    def __init__(self, routes: Mapping[str, Route], default: str, is_live: bool) -> None:
        """`routes` by the names that messages may use; `default` serves who asks for none."""
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
        return replace(route.admission.admit(replace(options, model=None)), model=route.name)

    def _asked_for(self, options: SessionOptions) -> tuple[Route | None, SessionOptions]:
        if options.model is None:
            return None, options
        route = self._routes.get(options.model)
        if route is not None and (route.reads_calls or not self._is_live):
            return route, options
        what = "this worker has no model of that name"
        if route is not None:
            what = f"the model {options.model} reads recordings alone, no live calls"
        if not options.lenient:
            raise CodecError(ErrorCode.OPTION_UNSUPPORTED, f"option model: {what}")
        warning = f"{ErrorCode.OPTION_UNSUPPORTED.value}:model"
        return None, replace(options, warnings=(*options.warnings, warning))

    def _speaking(self, language: str | None) -> Route:
        """The lane's own model, unless the language is another's and not its own."""
        if language is None or language == AUTO_LANGUAGE or self._default.admission.knows(language):
            return self._default
        for route in self._routes.values():
            if (route.reads_calls or not self._is_live) and route.admission.knows(language):
                return route
        return self._default
