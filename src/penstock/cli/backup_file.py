"""The file of a backup: NDJSON under gzip, whose last line lists its content.

{"kind":"begin","format":1,"store":"…","at":"…"}
{"kind":"message","message":{…}} …
{"kind":"end","lines":{"message":1000},"sha256":"…"}     of every line before it
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from penstock.flow.backup import (
    Saved,
    SavedMessage,
    SavedPause,
    SavedPolicy,
    SavedRule,
    SavedSuppression,
    kind_of,
)
from penstock.model.errors import ConfigError, StoreCorrupt

FORMAT = 1


class Begin(msgspec.Struct, tag="begin", tag_field="kind", frozen=True):
    format: int
    store: str
    at: str


class End(msgspec.Struct, tag="end", tag_field="kind", frozen=True):
    lines: dict[str, int]
    sha256: str


_Line: TypeAlias = (
    Begin | SavedMessage | SavedRule | SavedPolicy | SavedSuppression | SavedPause | End
)
_encode = msgspec.json.Encoder().encode
_line: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


async def write(
    path: Path, begin: Begin, batches: AsyncIterator[Sequence[Saved]], wrote: Callable[[int], None]
) -> Counter[str]:
    """Write the file beside its place and move it there once it is complete and on the disk."""
    unfinished = path.with_name(path.name + ".part")
    lines: Counter[str] = Counter()
    digest = hashlib.sha256()
    try:
        with unfinished.open("wb") as raw, gzip.open(raw, "wb", compresslevel=6) as file:
            os.fchmod(raw.fileno(), 0o600)  # payloads are private
            text = _encode(begin) + b"\n"
            digest.update(text)
            file.write(text)
            async for batch in batches:
                text = b"".join([_encode(record) + b"\n" for record in batch])
                digest.update(text)
                file.write(text)
                lines.update(map(kind_of, batch))
                wrote(len(batch))
            file.write(_encode(End(dict(lines), digest.hexdigest())) + b"\n")
            file.close()
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.replace(path)
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror or exc}") from exc
    finally:
        unfinished.unlink(missing_ok=True)
    return lines


def check(path: Path) -> tuple[Begin, dict[str, int]]:
    """Read the whole file; return its first line and the number of lines of each kind.

    StoreCorrupt when anything is missing, changed or follows the end.
    """
    lines: Counter[str] = Counter()
    digest = hashlib.sha256()
    begin: Begin | None = None
    end: End | None = None
    for text, line in _read(path):
        if end is not None:
            raise StoreCorrupt(f"{path}: damaged: data follows its end")
        if isinstance(line, End):
            end = line
            continue
        digest.update(text)
        if begin is None:
            begin = _begun(path, line)
        elif isinstance(line, Begin):
            raise StoreCorrupt(f"{path}: damaged: it begins twice")
        else:
            lines[kind_of(line)] += 1
    if begin is None or end is None:
        raise StoreCorrupt(f"{path}: damaged: it has no end; the backup was not finished")
    if end.sha256 != digest.hexdigest() or end.lines != lines:
        raise StoreCorrupt(f"{path}: damaged: its lines do not match its counts or checksum")
    return begin, end.lines


def records(path: Path) -> Iterator[Saved]:
    """The records of a checked file, to restore."""
    for _, line in _read(path):
        if not isinstance(line, Begin | End):
            yield line


def _begun(path: Path, line: object) -> Begin:
    if not isinstance(line, Begin):
        raise StoreCorrupt(f"{path}: not a backup of Penstock")
    if line.format > FORMAT:
        raise ConfigError(f"{path}: written by a newer Penstock (format {line.format})")
    return line


def _read(path: Path) -> Iterator[tuple[bytes, _Line]]:
    try:
        with gzip.open(path, "rb") as file:
            for text in file:
                yield text, _line.decode(text)
    except (EOFError, zlib.error, gzip.BadGzipFile, msgspec.MsgspecError) as exc:
        raise StoreCorrupt(f"{path}: damaged or not a backup of Penstock: {exc}") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror or exc}") from exc
