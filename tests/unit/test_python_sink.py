"""python: sinks: how a function is found, called, and understood."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest

from penstock.model.errors import ConfigError
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Reject, Retry, RetryLater, SendOutcome
from penstock.ports.sink import SinkOptions
from penstock.sinks.python import open_sink, python_sink, takes_many
from penstock.testing.sink_suite import message

NO_NUMBER = "Expected `float | null`, got `str` - at `$.after`"


async def outcome_of(function: Callable[..., object]) -> SendOutcome:
    sink = python_sink(function)
    (outcome,) = await sink.send([message()])
    await sink.close()
    return outcome


class NoException(BaseException):
    """As a panic of an extension, or a time-out of gevent."""


def raiser(exc: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise exc

    return raise_it


def raising(exc: BaseException) -> Callable[[Message], None]:
    def handle(message: Message) -> None:
        raise exc

    return handle


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (None, DELIVERED),
        (True, DELIVERED),
        (DELIVERED, DELIVERED),
        ({"rows": 1}, DELIVERED),
        (False, Retry("the function returned False")),
        (Retry("busy", after=3), Retry("busy", after=3)),
        (Dead("no such user"), Dead("no such user")),
        (
            Retry("busy", after="soon"),  # type: ignore[arg-type] # as a program may
            Retry(f"the function's Retry is not one: {NO_NUMBER}"),
        ),
        (
            Dead(None),  # type: ignore[arg-type] # as a program may
            Retry("the function's Dead is not one: Expected `str`, got `null` - at `$.error`"),
        ),
    ],
)
async def test_what_is_returned_is_understood(said: object, outcome: SendOutcome) -> None:
    async def handle_async(message: Message) -> object:
        return said

    assert await outcome_of(lambda _: said) == outcome
    assert await outcome_of(handle_async) == outcome


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (RetryLater("busy", after=3), Retry("busy", after=3)),
        (RetryLater(), Retry("RetryLater")),
        (
            RetryLater("busy", after="soon"),  # type: ignore[arg-type] # as a program may
            Retry(f"the function's Retry is not one: {NO_NUMBER}"),
        ),
        (Reject("no such user"), Dead("no such user")),
        (ValueError("bad"), Retry("ValueError: bad")),
        (KeyError(), Retry("KeyError")),
        (SystemExit(3), Retry("SystemExit: 3")),
        (asyncio.CancelledError(), Retry("the function was cancelled")),
        (NoException("panic"), Retry("NoException: panic")),
    ],
)
async def test_what_is_raised_is_understood(raised: BaseException, outcome: SendOutcome) -> None:
    async def handle_async(message: Message) -> None:
        raise raised

    assert await outcome_of(raising(raised)) == outcome
    assert await outcome_of(handle_async) == outcome


async def test_a_call_in_a_thread_is_waited_for_though_its_send_is_broken_off() -> None:
    began, end = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        began.set()
        end.wait(30)

    sink = python_sink(handle)
    under_way = asyncio.ensure_future(sink.send([message()]))
    await asyncio.to_thread(began.wait, 300)
    under_way.cancel()
    await asyncio.sleep(0)
    assert not under_way.done()
    end.set()
    assert await under_way == [DELIVERED]
    await sink.close()


async def test_a_call_that_waits_for_a_thread_is_not_begun_when_its_send_is_broken_off() -> None:
    began, end = threading.Event(), threading.Event()
    called: list[str] = []

    def handle(message: Message) -> None:
        called.append(message.id)
        began.set()
        end.wait(30)

    sink = python_sink(handle, threads=1)
    first = asyncio.ensure_future(sink.send([message(1)]))
    await asyncio.to_thread(began.wait, 300)
    second = asyncio.ensure_future(sink.send([message(2)]))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    end.set()
    assert await first == [DELIVERED]
    await sink.close()
    assert called == ["m-1"]


async def test_a_closed_sink_waits_for_no_thread() -> None:
    began, end = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        began.set()
        end.wait(30)

    sink = python_sink(handle)
    under_way = asyncio.ensure_future(sink.send([message()]))
    await asyncio.to_thread(began.wait, 300)
    await sink.close()
    under_way.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    end.set()


async def test_an_unexpected_exception_is_logged_with_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await outcome_of(raising(Reject("meant")))
    await outcome_of(raising(ValueError("bad")))
    (record,) = caplog.records
    assert record.getMessage().endswith(" raised ValueError: bad")
    assert record.exc_info is not None


async def test_a_stop_iteration_does_not_hang_the_send() -> None:
    assert await outcome_of(raising(StopIteration())) == Retry("StopIteration")


async def test_ctrl_c_goes_through_an_async_function_and_is_an_outcome_in_a_thread() -> None:
    async def handle(message: Message) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await python_sink(handle)._call(message())  # type: ignore[attr-defined]
    assert await outcome_of(raising(KeyboardInterrupt())) == Retry("KeyboardInterrupt")


async def test_a_function_that_cancels_itself_is_retried() -> None:
    async def handle(message: Message) -> None:
        raise asyncio.CancelledError

    assert await outcome_of(handle) == Retry("the function was cancelled")


async def test_a_cancelled_send_cancels_the_function() -> None:
    ended = asyncio.Event()
    started = asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    send = asyncio.ensure_future(python_sink(handle).send([message()]))
    await started.wait()
    send.cancel()
    with pytest.raises(asyncio.CancelledError):
        await send
    assert ended.is_set()


async def test_a_sync_function_runs_off_the_loop_in_few_threads() -> None:
    seen: set[int] = set()

    def handle(message: Message) -> None:
        seen.add(threading.get_ident())

    sink = python_sink(handle, threads=2)
    await asyncio.gather(*(sink.send([message(n)]) for n in range(20)))
    await sink.close()
    assert 1 <= len(seen) <= 2
    assert threading.get_ident() not in seen
    assert sink.concurrency == 2


async def test_a_sync_function_that_returns_a_coroutine_is_awaited() -> None:
    async def refuse(message: Message) -> Dead:
        return Dead("no")

    def handle(message: Message) -> object:
        return refuse(message)

    assert await outcome_of(handle) == Dead("no")


async def test_an_object_with_an_async_call_is_async() -> None:
    class Handler:
        async def __call__(self, messages: list[Message]) -> list[SendOutcome]:
            return [Dead(m.id) for m in messages]

    sink = python_sink(Handler())
    assert list(await sink.send([message(1), message(2)])) == [Dead("m-1"), Dead("m-2")]


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize(
    ("raised", "outcome"),
    [(ValueError("bad"), Retry("ValueError: bad")), (Reject("bad"), Dead("bad"))],
)
async def test_a_batch_function_that_raises_for_one_message_delivers_all_others_once(
    threads: bool, raised: Exception, outcome: SendOutcome
) -> None:
    done: list[str] = []

    def handle(batch: list[Message]) -> None:
        if any(one.id == "m-17" for one in batch):
            raise raised
        done.extend(one.id for one in batch)

    async def handle_async(batch: list[Message]) -> None:
        handle(batch)

    sink = python_sink(handle if threads else handle_async)
    outcomes = await sink.send([message(n) for n in range(51)])
    await sink.close()
    assert outcomes == [outcome if n == 17 else DELIVERED for n in range(51)]
    assert done == [f"m-{n}" for n in range(51) if n != 17]


async def test_a_batch_function_that_asks_for_time_gets_it_for_all() -> None:
    calls: list[int] = []

    def handle(batch: list[Message]) -> None:
        calls.append(len(batch))
        raise RetryLater("busy", after=3)

    sink = python_sink(handle)
    assert await sink.send([message(n) for n in range(20)]) == [Retry("busy", after=3)] * 20
    await sink.close()
    assert calls == [20]


async def test_a_batch_function_that_always_raises_is_not_called_for_every_message() -> None:
    calls: list[int] = []

    def handle(batch: list[Message]) -> None:
        calls.append(len(batch))
        raise ConnectionError("the database is away")

    sink = python_sink(handle)
    outcomes = await sink.send([message(n) for n in range(500)])
    await sink.close()
    assert {type(outcome) for outcome in outcomes} == {Retry}
    assert len(calls) < 40


async def test_a_batch_function_answers_for_each_for_all_or_wrongly() -> None:
    answers: list[object] = [
        [None, False, Dead("x")],
        Retry("all"),
    ]

    async def handle(messages: list[Message]) -> object:
        return answers.pop(0)

    sink = python_sink(handle)
    three = [message(n) for n in range(3)]
    assert list(await sink.send(three)) == [
        DELIVERED,
        Retry("the function returned False"),
        Dead("x"),
    ]
    assert list(await sink.send(three)) == [Retry("all")] * 3


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize(
    ("bad", "outcome"),
    [
        (lambda: 1 / 0, Retry("ZeroDivisionError: division by zero")),
        (raiser(asyncio.CancelledError()), Retry("the function was cancelled")),
        (raiser(SystemExit(3)), Retry("SystemExit: 3")),
        (raiser(GeneratorExit()), Retry("GeneratorExit")),
        (raiser(NoException("panic")), Retry("NoException: panic")),
        (
            raiser(BaseExceptionGroup("several", [NoException("panic")])),
            Retry("BaseExceptionGroup: several (1 sub-exception)"),
        ),
    ],
)
async def test_whatever_is_raised_for_one_of_a_batch_is_that_ones(
    threads: bool, bad: Callable[[], None], outcome: SendOutcome
) -> None:
    def handle(batch: list[Message]) -> None:
        if any(one.id == "m-17" for one in batch):
            bad()

    async def handle_async(batch: list[Message]) -> None:
        handle(batch)

    sink = python_sink(handle if threads else handle_async)
    outcomes = await sink.send([message(n) for n in range(51)])
    await sink.close()
    assert outcomes == [outcome if n == 17 else DELIVERED for n in range(51)]


async def test_a_list_that_is_too_short_because_of_one_message_is_that_ones() -> None:
    async def handle(batch: list[Message]) -> object:
        return [None for one in batch if one.id != "m-17"]

    sink = python_sink(handle)
    outcomes = await sink.send([message(n) for n in range(51)])
    wrong = Retry("the function returned 0 outcomes for 1 messages")
    assert outcomes == [wrong if n == 17 else DELIVERED for n in range(51)]


@pytest.mark.parametrize(
    ("returned", "outcome"),
    [
        (OSError("away"), Retry("OSError: away")),
        (Reject("no such user"), Dead("no such user")),
        (RetryLater("busy", after=3), Retry("busy", after=3)),
        (Dead, Retry("the function returned the class Dead, not one of it")),
        (ValueError, Retry("the function returned the class ValueError, not one of it")),
    ],
)
async def test_an_exception_that_is_returned_means_what_it_means_raised(
    returned: object, outcome: SendOutcome
) -> None:
    async def handle_many(batch: list[Message]) -> object:
        return [returned if one.id == "m-1" else None for one in batch]

    assert await outcome_of(lambda _: returned) == outcome
    sink = python_sink(handle_many)
    assert await sink.send([message(n) for n in range(3)]) == [DELIVERED, outcome, DELIVERED]


def one(message: Message) -> None: ...
def untyped(message): ...  # type: ignore[no-untyped-def]
def many(messages: list[Message]) -> None: ...
def many_more(messages: Sequence[Message]) -> None: ...
def any_of(messages: Iterable[Message]) -> None: ...
def a_tuple(messages: tuple[Message, ...]) -> None: ...
def bare(messages: list) -> None: ...  # type: ignore[type-arg]
def unseen(messages: "Sequence[NowhereImported]") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def unseen_one(message: "NowhereImported") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def a_text(text: str) -> None: ...
def nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "batch"),
    [
        *((f, False) for f in (one, untyped, unseen_one, a_text, nothing, print)),
        *((f, True) for f in (many, many_more, any_of, a_tuple, bare, unseen)),
        (partial(many), True),
        (partial(one), False),
    ],
)
def test_the_first_annotation_tells_batches(function: Callable[..., object], batch: bool) -> None:
    assert takes_many(function) is batch


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


async def test_a_module_of_the_current_folder_is_found(folder: Path) -> None:
    (folder / "penstock_handlers_a.py").write_text(
        "class Box:\n    @staticmethod\n    async def put(messages):\n        return True\n"
    )
    sink = await open_sink("python:penstock_handlers_a:Box.put?batch=7", SinkOptions())
    assert sink.name == "python:penstock_handlers_a:Box.put"
    assert sink.max_batch == 7
    assert list(await sink.send([message(1), message(2)])) == [DELIVERED, DELIVERED]
    await sink.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("python:", "must be python:package.module:function, not 'python:'"),
        ("python:os", "must be python:package.module:function, not 'python:os'"),
        ("python:os:", "must be python:package.module:function"),
        ("python:nowhere.there:f", "no module named 'nowhere'"),
        ("python:json.nowhere:f", "no module named 'json.nowhere'"),
        ("python:json:nowhere", "module 'json' has no 'nowhere'"),
        ("python:json:__name__", "json:__name__ is not a function but str"),
        ("python:penstock_needs:f", "module 'penstock_needs' needs 'penstock_absent'"),
        ("python:penstock_broken:f", "could not be imported: ZeroDivisionError"),
    ],
)
async def test_what_is_missing_is_named(folder: Path, url: str, said: str) -> None:
    (folder / "penstock_needs.py").write_text("import penstock_absent\n")
    (folder / "penstock_broken.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError) as caught:
        await open_sink(url, SinkOptions(route="jobs"))
    assert caught.value.message.startswith("routes.jobs.sink: ")
    assert said in caught.value.message


@pytest.mark.parametrize("query", ["batch=0", "batch=x", "threads=0", "treads=3", "batch="])
async def test_a_wrong_option_is_named(query: str) -> None:
    with pytest.raises(ConfigError, match=rf"routes\.jobs\.{query.partition('=')[0]}: "):
        await open_sink(f"python:json:dumps?{query}", SinkOptions(route="jobs"))
