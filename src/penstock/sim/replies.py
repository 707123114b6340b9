"""Replies of a simulated receiver: those of a good one, or of any of the bad ones."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from http import HTTPStatus

import msgspec


class How(StrEnum):
    ANSWER = "answer"
    HANG = "hang"  # accepts the request and never answers
    CUT = "cut"  # closes the connection without an answer
    CUT_HEAD = "cut_head"  # … in the middle of the status line
    CUT_BODY = "cut_body"  # … in the middle of the answer's body
    GARBAGE = "garbage"  # answers bytes that are not HTTP
    ENDLESS = "endless"  # answers with a body that never ends


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reply to one request."""

    how: How = How.ANSWER
    status: int = 200
    headers: dict[str, str] = {}
    body: str = "ok"
    delay: float = 0.0
    """Seconds before the answer begins."""


OK = Reply()


async def answer(reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Answer as the reply says; returns whether the connection may be reused."""
    if reply.delay:
        await asyncio.sleep(reply.delay)
    match reply.how:
        case How.ANSWER:
            body = reply.body.encode()
            writer.write(_head(reply, f"content-length: {len(body)}") + body)
            await writer.drain()
            return True
        case How.HANG:
            await reader.read()  # until the client disconnects
        case How.CUT:
            pass
        case How.CUT_HEAD:
            writer.write(b"HTTP/1.1 2")
        case How.CUT_BODY:
            writer.write(_head(reply, "content-length: 1000") + b"only the beginn")
        case How.GARBAGE:
            writer.write(b"\x00\xff\xfe this is not HTTP \x1b[31m\r\n\r\n")
        case How.ENDLESS:
            await _never_end(reply, writer)
    await writer.drain()
    return False


def _head(reply: Reply, framing: str) -> bytes:
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {reply.status} {phrase}", framing]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


async def _never_end(reply: Reply, writer: asyncio.StreamWriter) -> None:
    writer.write(_head(reply, "transfer-encoding: chunked"))
    chunk = b"400\r\n" + b"x" * 0x400 + b"\r\n"
    while not writer.is_closing():
        writer.write(chunk)
        await writer.drain()
        await asyncio.sleep(0)  # other tasks run between chunks
