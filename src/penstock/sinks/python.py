"""python:package.module:function — calls a function with each message, or with a batch.

    def handle(message: Message) -> None: ...            one by one
    async def handle(messages: list[Message]): ...       in batches, by the annotation
    python:app.tasks:handle?batch=200                    in batches, by the URL

Returning (None, True, anything else) means delivered; False, `Retry(…)` and `Dead(…)` mean what
they say, and so do raising `RetryLater(…)` and `Reject(…)`. Any other exception is a retry with
its text; one that is returned means what it means raised. A batch function may also return a list
with one of these for each message. Of a batch for which it raises anything but `RetryLater`, or
returns a list of another length, it is called again with halves, until the message to blame is
alone: only that one is retried or rejected.

Whatever a function raises is the outcome of its own messages: SystemExit, a cancellation and other
exceptions that are no `Exception` end no worker, either. KeyboardInterrupt in the thread of the
event loop is Ctrl-C.

The function gets the message with the route's fixed headers among its own. One that is not
async runs in threads of this sink, at most `?threads=16` at once. No time limit is put on it: a
thread cannot be stopped, and a repeat beside the first call would be worse than waiting. So a send
that is broken off while its thread runs goes on until the thread ends or the sink is closed. A
`timeout` of the route only shows which calls take longer.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import re
import sys
import typing
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from penstock.model.envelope import Envelope
from penstock.model.isolation import isolate
from penstock.model.message import Message
from penstock.model.outcome import (
    DELIVERED,
    Dead,
    Reject,
    Retry,
    RetryLater,
    SendOutcome,
)
from penstock.ports.sink import Sink, SinkOptions

log = logging.getLogger("penstock.sink.python")

Handler: TypeAlias = Callable[..., object]

DEFAULT_BATCH = 100
DEFAULT_THREADS = 16
IN_FLIGHT = 2_000
ASYNC_CONCURRENCY = 100
_MANY = re.compile(r"(?:\w+\.)*(?:list|tuple|List|Tuple|Sequence|Iterable|Collection)\b.*")


class PythonOptions(msgspec.Struct, frozen=True):
    batch: typing.Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """Call with lists of at most this many messages."""
    threads: typing.Annotated[int, msgspec.Meta(ge=1, le=1_000)] = DEFAULT_THREADS
    """Calls at once of a function that is not async."""


class _Raised(Exception):
    """Wraps an exception that the function raised."""

    def __init__(self, cause: BaseException, outcome: SendOutcome) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.outcome = outcome


class PythonSink:
    """Calls a function. Made by `python_sink`."""

    def __init__(
        self,
        function: Handler,
        name: str,
        *,
        batch: int | None,
        threads: int,
        envelope: Envelope,
    ) -> None:
        self.name = name
        self._envelope = envelope
        self._function = function
        self._batched = batch is not None
        self.max_batch = batch or 1
        self._threads = None if _is_async(function) else ThreadPoolExecutor(threads, "penstock")
        self._closed = False
        at_once = ASYNC_CONCURRENCY if self._threads is None else threads
        self.concurrency = at_once if batch is None else _in_flight(batch, at_once)

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        given = self._envelope.all_with_fixed(batch)
        if self._batched:
            return await isolate(given, self._call_with, self._blame) if given else []
        return [self._outcome(await self._call(message)) for message in given]

    async def _call_with(self, part: Sequence[Message]) -> Sequence[SendOutcome]:
        """Call the function; raises _Raised for errors that may concern one message only."""
        said = await self._call(list(part))
        if isinstance(said, BaseException) and not isinstance(said, _Raised):
            said = _Raised(said, self._meaning(said))
        if isinstance(said, _Raised) and not isinstance(said.cause, RetryLater):
            raise said
        if not isinstance(said, list | tuple):
            return [self._outcome(said)] * len(part)
        if len(said) != len(part):
            text = f"the function returned {len(said)} outcomes for {len(part)} messages"
            raise _Raised(ValueError(text), Retry(text))
        return [self._outcome(one) for one in said]

    def _blame(self, exc: Exception) -> SendOutcome:
        return exc.outcome if isinstance(exc, _Raised) else self._meaning(exc)

    async def _call(self, argument: Message | list[Message]) -> object:
        """The function's return value, or the outcome that its exception means."""
        try:
            if self._threads is None:
                said = self._function(argument)
            else:
                said = await self._ended(self._threads.submit(self._in_thread, argument))
            return await said if isinstance(said, Awaitable) else said
        except BaseException as exc:
            if _comes_from_outside(exc):
                raise
            return _Raised(exc, self._meaning(exc))

    async def _ended(self, call: Future[object]) -> object:
        """The result of a call in a thread. Cancelling stops only a call that has not begun."""
        while True:
            try:
                return await asyncio.wrap_future(call)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or call.cancelled() or self._closed:
                    raise
                task.uncancel()

    def _in_thread(self, argument: Message | list[Message]) -> object:
        try:
            return self._function(argument)
        except BaseException as exc:  # noqa: BLE001 - a StopIteration cannot cross a Future
            return _Raised(exc, self._meaning(exc))

    def _meaning(self, exc: BaseException) -> SendOutcome:
        text = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
        if isinstance(exc, Reject):
            return Dead(str(exc) or text)
        if isinstance(exc, RetryLater):
            return _checked(Retry(str(exc) or text, after=exc.after))
        if isinstance(exc, asyncio.CancelledError):
            return Retry("the function was cancelled")
        # The traceback is for the function's author.
        log.warning("sink %s: the function raised %s", self.name, text, exc_info=exc)
        return Retry(text)

    def _outcome(self, said: object) -> SendOutcome:
        if isinstance(said, _Raised):
            return said.outcome
        if isinstance(said, Retry | Dead):
            return _checked(said)
        if isinstance(said, BaseException):  # as asyncio.gather returns them
            return self._meaning(said)
        if isinstance(said, type) and issubclass(said, BaseException | Retry | Dead):
            return Retry(f"the function returned the class {said.__name__}, not one of it")
        return Retry("the function returned False") if said is False else DELIVERED

    async def check(self) -> None:
        """Always succeeds: the function was imported, and there is no connection."""

    async def close(self) -> None:
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _comes_from_outside(exc: BaseException) -> bool:
    """True if this exception stops the call from outside; False if the function raised it."""
    if isinstance(exc, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    if isinstance(exc, GeneratorExit):  # a loop that is gone closes what it had begun
        return not _in_a_loop()
    return isinstance(exc, KeyboardInterrupt)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_flight(batch: int, at_once: int) -> int:
    """Four batches, or more small ones: a large claim costs little more than a small one."""
    return max(batch * min(at_once, 4), min(batch * at_once, IN_FLIGHT))


def python_sink(
    function: Handler,
    name: str | None = None,
    *,
    batch: int | None = None,
    threads: int = DEFAULT_THREADS,
    envelope: Envelope | None = None,
) -> Sink:
    """A sink that calls `function`; `batch` or its first annotation makes it take lists."""
    if batch is None and takes_many(function):
        batch = DEFAULT_BATCH
    label = name or f"python:{getattr(function, '__qualname__', type(function).__name__)}"
    return PythonSink(
        function, label, batch=batch, threads=threads, envelope=envelope or Envelope({})
    )


async def open_sink(url: str, options: SinkOptions) -> Sink:
    parts = urlsplit(url)
    own = options.read(PythonOptions, parts.query)
    return python_sink(
        _find(parts.path, options),
        f"python:{parts.path}",
        batch=own.batch,
        threads=own.threads,
        envelope=options.envelope(),
    )


def takes_many(function: Handler) -> bool:
    """Whether the first parameter is annotated as a list, tuple, Sequence or the like."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    if not parameters:
        return False
    try:
        annotation = typing.get_type_hints(_underneath(function)).get(parameters[0].name)
    except (NameError, TypeError, AttributeError):  # names that only a type checker sees
        annotation = parameters[0].annotation
    if isinstance(annotation, str):
        return _MANY.fullmatch(annotation.strip("'\"")) is not None
    shape = typing.get_origin(annotation) or annotation
    return isinstance(shape, type) and _is_plural(shape)


def _underneath(function: Handler) -> Handler:
    """The annotated function: the function of a partial, or the __call__ of an object."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _is_plural(shape: type) -> bool:
    return not issubclass(shape, str | bytes | msgspec.Struct) and hasattr(shape, "__iter__")


def _is_async(function: Handler) -> bool:
    # an object is async if its __call__ is
    called = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _find(path: str, options: SinkOptions) -> Handler:
    module_name, colon, function_name = path.partition(":")
    if not (module_name and colon and function_name):
        raise options.wrong(f"must be python:package.module:function, not {'python:' + path!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last: the program's folder must not shadow installed modules
    try:
        module = importlib.import_module(module_name)
    except Exception as exc:
        raise options.wrong(_import_trouble(module_name, exc)) from exc
    try:
        function: object = attrgetter(function_name)(module)
    except AttributeError as exc:
        raise options.wrong(f"module {module_name!r} has no {function_name!r}") from exc
    if not callable(function):
        kind = type(function).__name__
        raise options.wrong(f"{module_name}:{function_name} is not a function but {kind}")
    return function


def _import_trouble(module_name: str, exc: Exception) -> str:
    if isinstance(exc, ModuleNotFoundError) and exc.name is not None:
        if module_name == exc.name or module_name.startswith(f"{exc.name}."):
            return f"no module named {exc.name!r} (looked in the current folder and sys.path)"
        return f"module {module_name!r} needs {exc.name!r}, which is not installed"
    return f"module {module_name!r} could not be imported: {type(exc).__name__}: {exc}"


def _checked(said: Retry | Dead) -> SendOutcome:
    """The same, or a retry that names the value of a wrong type: a struct takes any."""
    try:
        return msgspec.convert(msgspec.structs.asdict(said), type(said))
    except msgspec.ValidationError as exc:
        return Retry(f"the function's {type(said).__name__} is not one: {exc}")
