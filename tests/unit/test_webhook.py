"""The webhook's own rules: which answer means what, and what it sends."""

import base64
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from penstock.model.errors import ConfigError, SinkUnavailable
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome
from penstock.model.signing import Signer
from penstock.ports.sink import Sink, SinkOptions
from penstock.sim.receiver import Receiver
from penstock.sim.replies import How, Reply
from penstock.sinks.webhook import open_sink
from penstock.testing.sink_suite import message


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest.fixture
async def sink(receiver: Receiver) -> AsyncIterator[Sink]:
    sink = await open_sink(receiver.url + "/hook", SinkOptions(timeout=30))
    yield sink
    await sink.close()


async def answer_to(sink: Sink, receiver: Receiver, reply: Reply) -> SendOutcome:
    receiver.always(reply)
    (outcome,) = await sink.send([message()])
    return outcome


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_2xx_is_delivered(sink: Sink, receiver: Receiver, status: int) -> None:
    assert await answer_to(sink, receiver, Reply(status=status, body="")) == DELIVERED


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
async def test_an_answer_that_may_change_is_retried(
    sink: Sink, receiver: Receiver, status: int
) -> None:
    outcome = await answer_to(sink, receiver, Reply(status=status, body="not now"))
    assert outcome == Retry(f"127.0.0.1:{receiver.port} answered {status}", answer="not now")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 410, 413, 422])
async def test_another_4xx_is_dead_at_once(sink: Sink, receiver: Receiver, status: int) -> None:
    outcome = await answer_to(sink, receiver, Reply(status=status, body="no"))
    assert outcome == Dead(f"127.0.0.1:{receiver.port} answered {status}", answer="no")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_not_followed(sink: Sink, receiver: Receiver, status: int) -> None:
    reply = Reply(status=status, headers={"location": receiver.url + "/other"}, body="")
    outcome = await answer_to(sink, receiver, reply)
    assert outcome == Dead(
        f"127.0.0.1:{receiver.port} answered {status}: redirects are not followed"
    )
    assert [request.path for request in receiver.received] == ["/hook"]


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_passed_on(sink: Sink, receiver: Receiver, status: int) -> None:
    reply = Reply(status=status, headers={"Retry-After": "17"})
    outcome = await answer_to(sink, receiver, reply)
    assert isinstance(outcome, Retry)
    assert outcome.after == 17.0


async def test_a_2xx_whose_body_is_cut_is_delivered(sink: Sink, receiver: Receiver) -> None:
    assert await answer_to(sink, receiver, Reply(how=How.CUT_BODY)) == DELIVERED


@pytest.mark.parametrize(("status", "kind"), [(200, type(DELIVERED)), (500, Retry), (400, Dead)])
async def test_an_endless_answer_is_not_read_to_its_end(
    sink: Sink, receiver: Receiver, status: int, kind: type
) -> None:
    outcome = await answer_to(sink, receiver, Reply(how=How.ENDLESS, status=status))
    assert isinstance(outcome, kind)


async def test_an_error_whose_body_is_cut_is_known_by_its_status(
    sink: Sink, receiver: Receiver
) -> None:
    outcome = await answer_to(sink, receiver, Reply(how=How.CUT_BODY, status=422))
    assert outcome == Dead(f"127.0.0.1:{receiver.port} answered 422", answer="only the beginn")


async def test_garbage_is_retried_and_somebody_is_there(sink: Sink, receiver: Receiver) -> None:
    outcome = await answer_to(sink, receiver, Reply(how=How.GARBAGE))
    assert isinstance(outcome, Retry)
    assert not outcome.unreachable
    assert outcome.may_have_arrived
    assert "not HTTP" in outcome.error
    assert outcome.error.isprintable()


@pytest.mark.parametrize("how", [How.CUT, How.CUT_HEAD])
async def test_a_line_cut_before_the_answer_is_retried(
    sink: Sink, receiver: Receiver, how: How
) -> None:
    outcome = await answer_to(sink, receiver, Reply(how=how))
    assert isinstance(outcome, Retry)
    assert outcome.unreachable
    assert outcome.may_have_arrived
    assert len(receiver.received) == 1  # a new connection: not repeated behind the flow's back


async def test_a_kept_alive_connection_that_ends_is_a_quick_retry_as_the_next_attempt(
    sink: Sink, receiver: Receiver
) -> None:
    receiver.then(Reply(), Reply(how=How.CUT))
    assert await sink.send([message(1)]) == [DELIVERED]
    (outcome,) = await sink.send([message(2)])
    assert isinstance(outcome, Retry)
    assert outcome.after is not None
    assert outcome.after < 1
    assert not outcome.unreachable
    assert outcome.may_have_arrived
    first, cut = receiver.received  # and not a third, behind the flow's back
    assert first.connection == cut.connection


async def test_connections_are_used_again(sink: Sink, receiver: Receiver) -> None:
    for number in range(5):
        await sink.send([message(number)])
    await answer_to(sink, receiver, Reply(status=500))
    assert {request.connection for request in receiver.received} == {1}


async def test_an_errors_words_are_short_and_plain(sink: Sink, receiver: Receiver) -> None:
    outcome = await answer_to(sink, receiver, Reply(status=500, body="a\n\x1b[31m" + "x" * 9000))
    assert isinstance(outcome, Retry)
    assert outcome.text.isprintable()
    assert 100 < len(outcome.text) < 250


async def test_secrets_that_are_echoed_are_not_kept(receiver: Receiver) -> None:
    url = f"http://ali:open%20sesame@127.0.0.1:{receiver.port}/?token=1"
    options = SinkOptions(
        secret="whsec_c2VjcmV0LXNlY3JldA==", headers={"x-api-key": "topsecretkey"}
    )
    sink = await open_sink(url, options)
    login = base64.b64encode(b"ali:open sesame").decode()
    echoed = f"open sesame {login} topsecretkey whsec_c2VjcmV0LXNlY3JldA== fine"
    outcome = await answer_to(sink, receiver, Reply(status=400, body=echoed))
    await sink.close()
    assert outcome == Dead(f"127.0.0.1:{receiver.port} answered 400", answer="*** *** *** *** fine")
    assert sink.name.startswith(f"http://127.0.0.1:{receiver.port}/…#")


async def test_credentials_of_the_url_become_basic_auth_that_no_caller_replaces(
    receiver: Receiver,
) -> None:
    sink = await open_sink(f"http://u:p%40ss@127.0.0.1:{receiver.port}/a?b=c#d", SinkOptions())
    await sink.send([message(headers={"Authorization": "mine"})])
    await sink.close()
    (request,) = receiver.received
    assert request.headers["authorization"] == "Basic " + base64.b64encode(b"u:p@ss").decode()
    assert request.path == "/a?b=c"
    assert request.method == "POST"


async def test_a_signed_message_can_be_verified(receiver: Receiver) -> None:
    secrets = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw plain-text"
    sink = await open_sink(receiver.url, SinkOptions(secret=secrets))
    await sink.send([message(payload=b'{"exact" :  1}')])
    await sink.close()
    (request,) = receiver.received
    timestamp = int(request.headers["webhook-timestamp"])
    expected = Signer(secrets).sign("m-1", timestamp, b'{"exact" :  1}')
    assert request.headers["webhook-signature"] == expected
    assert abs(request.at // 1000 - timestamp) <= 60


async def test_a_signature_fits_an_id_whose_outer_spaces_are_lost(receiver: Receiver) -> None:
    sink = await open_sink(receiver.url, SinkOptions(secret="plain-text"))
    await sink.send([message(message_id=" a b ")])
    await sink.close()
    headers = receiver.received[0].headers
    assert headers["webhook-id"] == "a b"
    expected = Signer("plain-text").sign("a b", int(headers["webhook-timestamp"]), b'{"n":1}')
    assert headers["webhook-signature"] == expected


async def test_an_unsigned_message_has_id_and_timestamp(sink: Sink, receiver: Receiver) -> None:
    await sink.send([message()])
    headers = receiver.received[0].headers
    assert headers["webhook-id"] == "m-1"
    assert headers["webhook-timestamp"].isdecimal()
    assert "webhook-signature" not in headers


async def test_a_caller_cannot_change_the_framing(sink: Sink, receiver: Receiver) -> None:
    evil = {"Content-Length": "3", "Transfer-Encoding": "chunked", "Host": "evil", "Expect": "x"}
    assert await sink.send([message(headers=evil)]) == [DELIVERED]
    (request,) = receiver.received
    assert request.body == b'{"n":1}'
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"


async def test_a_payload_of_several_megabytes_arrives(sink: Sink, receiver: Receiver) -> None:
    payload = bytes(range(256)) * 4096 * 3
    assert await sink.send([message(payload=payload)]) == [DELIVERED]
    assert receiver.received[0].body == payload


async def test_an_answer_that_comes_too_late_is_given_up_and_is_that_messages_own_affair(
    receiver: Receiver,
) -> None:
    receiver.always(Reply(delay=30))
    sink = await open_sink(receiver.url, SinkOptions(timeout=1))
    (outcome,) = await sink.send([message()])
    await sink.close()
    assert outcome == Retry(f"127.0.0.1:{receiver.port}: no answer in 1 s", unsure=True)


async def test_a_side_that_takes_no_connection_in_time_is_unreachable() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with contextlib.ExitStack() as waiting:  # its queue of connections has no room left
            for _ in range(3):
                other = waiting.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(address)
            sink = await open_sink(f"http://127.0.0.1:{address[1]}/", SinkOptions(timeout=0.2))
            (outcome,) = await sink.send([message()])
            await sink.close()
    error = f"127.0.0.1:{address[1]}: no connection in 0.2 s"
    assert outcome == Retry(error, unreachable=True, unsure=False)


async def test_a_side_that_does_not_speak_tls_is_unreachable(receiver: Receiver) -> None:
    sink = await open_sink(f"https://127.0.0.1:{receiver.port}/", SinkOptions(timeout=30))
    (outcome,) = await sink.send([message()])
    with pytest.raises(SinkUnavailable):
        await sink.check()
    await sink.close()
    assert isinstance(outcome, Retry)
    assert outcome.unreachable
    assert receiver.received == []


async def test_a_name_nobody_knows_is_unreachable() -> None:
    sink = await open_sink("http://nobody.invalid/", SinkOptions(timeout=30))
    (outcome,) = await sink.send([message()])
    await sink.close()
    assert isinstance(outcome, Retry)
    assert outcome.unreachable
    assert outcome.error.startswith("nobody.invalid: ")


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("http://", SinkOptions(route="r"), "routes.r.sink: must be http://host"),
        ("https:///path", SinkOptions(route="r"), "routes.r.sink: must be https://host"),
        ("http://h:99999/", SinkOptions(route="r"), "routes.r.sink: must be http://host"),
        ("http://u:pw@h:x/", SinkOptions(route="r"), "routes.r.sink: must be http://host"),
        ("http://h/a b", SinkOptions(route="r"), "routes.r.sink: must be http://host"),
        ("http://h/", SinkOptions(route="r", secret="whsec_!"), "routes.r.secret: must be base64"),
        ("http://h/", SinkOptions(route="r", headers={"a b": ""}), "routes.r.headers: the name"),
        ("http://h/", SinkOptions(route="r", more={"maxlen": 1}), "routes.r.maxlen: no such"),
    ],
)
async def test_a_wrong_setting_is_named(url: str, options: SinkOptions, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await open_sink(url, options)
    assert caught.value.message.startswith(said)
    assert "pw" not in caught.value.message
