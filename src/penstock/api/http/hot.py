"""The protocol of every connection; what is particular about it is still to come."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.api.http.context import Api


class HotProtocol(HttpToolsProtocol):
    def __init__(self, *args: Any, api: Api, **options: Any) -> None:
        super().__init__(*args, **options)
        self._api = api

    def look_after(self, now: float) -> None:
        """Called once a second."""
