"""A store to try things in: beside the real one, on the same disk, gone afterwards."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from penstock.model.errors import StoreUnavailable
from penstock.stores.sqlite.address import parse_address


def scratch_url(url: str, mark: str) -> str:
    """The same settings on a new file in the same folder; in memory: another one."""
    path = parse_address(url).path
    if path is None:
        return url
    query = urlsplit(url).query
    beside = quote(str(path.with_name(f"{path.stem}-{mark}{path.suffix}")))
    return f"sqlite:///{beside}" + (f"?{query}" if query else "")


async def erase(url: str) -> None:
    """Remove the file and what SQLite keeps beside it; StoreUnavailable names what stays."""
    path = parse_address(url).path
    if path is None:
        return
    for ending in ("", "-wal", "-shm", "-lock", "-unsynced"):
        file = path.with_name(path.name + ending)
        try:
            file.unlink(missing_ok=True)
        except OSError as exc:
            raise StoreUnavailable(
                f"{file} is left behind and may be removed: {exc.strerror}"
            ) from exc
