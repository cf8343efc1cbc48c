"""A message is served by the model that it asks for, or by the first that can."""

from __future__ import annotations

import pytest

from oasr.decoding.options import DecodingOptions
from oasr.errors import OptionError
from worker.admission import Admission
from worker.errors import CodecError, ErrorCode
from worker.options import SessionOptions, parse_options
from worker.routing import Route, Router


def no_alternatives(decoding: DecodingOptions) -> None:
    if decoding.n_best > 1:
        raise OptionError("n_best", "n_best: the model has one reading")


def routes() -> dict[str, Route]:
    live = Route("live", Admission(("en",), DecodingOptions(beam=4)), reads_calls=True)
    files = Route("files", Admission(("en", "de"), DecodingOptions(beam=5), no_alternatives), False)
    spanish = Route("spanish", Admission(("es",)), reads_calls=True)
    return {"live": live, "files": files, "spanish": spanish}


CALLS = Router(routes(), "live", is_live=True, second="files")
FILES = Router(routes(), "files", is_live=False)


def asked(**options: object) -> SessionOptions:
    return parse_options(options)


@pytest.mark.parametrize(
    ("router", "options", "model"),
    [
        (CALLS, {}, "live"),
        (FILES, {}, "files"),
        (FILES, {"model": "live"}, "live"),
        (FILES, {"model": "files"}, "files"),
        (CALLS, {"model": "spanish"}, "spanish"),
        (CALLS, {"language": "es-MX"}, "spanish"),
        (CALLS, {"language": "en-GB"}, "live"),
        (CALLS, {"language": "auto"}, "live"),
        (FILES, {"language": "de"}, "files"),
        (FILES, {"language": "es"}, "spanish"),
        (FILES, {"model": "live", "language": "en"}, "live"),
    ],
)
def test_the_model_is_the_one_asked_for_or_the_first_that_speaks_the_language(
    router: Router, options: dict[str, object], model: str
) -> None:
    assert router.admit(asked(**options)).model == model


def test_each_model_has_its_own_way_of_decoding() -> None:
    assert CALLS.admit(SessionOptions()).decoding.beam == 4
    assert FILES.admit(SessionOptions()).decoding.beam == 5


@pytest.mark.parametrize(
    ("router", "options", "said"),
    [
        (CALLS, {"model": "french"}, "no model of that name"),
        (CALLS, {"model": "files"}, "the model files reads recordings alone"),
        (CALLS, {"language": "de"}, "does not know the language"),
        (FILES, {"model": "live", "language": "es"}, "does not know the language"),
        (FILES, {"max_alternatives": 2}, "cannot honour the option n_best"),
        (FILES, {"second_pass": True}, "no model for second passes"),
        (CALLS, {"second_pass": True, "language": "es"}, "does not know the language"),
    ],
)
def test_what_no_model_or_not_the_one_asked_for_can_do_is_refused_by_name(
    router: Router, options: dict[str, object], said: str
) -> None:
    with pytest.raises(CodecError, match=said) as refused:
        router.admit(asked(**options))

    assert refused.value.code is ErrorCode.OPTION_UNSUPPORTED


def test_a_lenient_producer_gets_the_usual_model_and_a_warning() -> None:
    admitted = CALLS.admit(asked(model="french", lenient=True))

    assert (admitted.model, admitted.warnings) == ("live", ("option_unsupported:model",))


def test_an_alternative_that_another_model_has_is_given_where_that_is_asked_for() -> None:
    assert FILES.admit(asked(max_alternatives=2, model="live")).decoding.n_best == 2


def test_a_second_pass_decodes_as_the_file_model_does_and_with_the_words_that_the_call_wants() -> (
    None
):
    admitted = CALLS.admit(asked(second_pass=True, words=True, hotwords=["june"]))

    assert (admitted.model, admitted.second_pass) == ("live", True)
    assert admitted.second_decoding == DecodingOptions(beam=5, word_times=True)


def test_a_lenient_call_goes_without_a_second_pass_that_nobody_can_make() -> None:
    router = Router(routes(), "live", is_live=True)
    admitted = router.admit(asked(second_pass=True, lenient=True))

    assert not admitted.second_pass
    assert admitted.warnings == ("option_unsupported:second_pass",)
