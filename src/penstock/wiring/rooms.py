"""Waiting rooms on the store of these parts."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.contrib import DISPATCHER, SYSTEMS, load, mounted
from penstock.ports.rooms import RoomStore
from penstock.rooms.enter import Enter
from penstock.rooms.join import Join
from penstock.rooms.leave import Leave
from penstock.rooms.operate import Operate
from penstock.rooms.parts import RoomParts
from penstock.rooms.promote import Promoter
from penstock.rooms.wait import Wait
from penstock.settings import Settings
from penstock.tokens import MIN_KEY, JwtSigner, SigningKey
from penstock.wiring.parts import Parts, process_name


@asynccontextmanager
async def open_rooms(parts: Parts) -> AsyncIterator[RoomParts | None]:
    """Waiting rooms on the same store; None if it has no rooms."""
    if parts.store.rooms is None:
        yield None
        return
    settings = parts.settings.rooms
    process = process_name()
    instance = settings.instance or process.host
    consumer = process._replace(host=instance).id
    opened = await parts.store.rooms.open_rooms(
        settings.capacity,
        consumer,
        serves_all=SYSTEMS["dispatcher"] in mounted(parts.settings),
        signs=settings.keys[0].kid if settings.keys else "",
    )
    try:
        signer = await _signer(parts.settings, opened.store)
        store, observer = opened.store, parts.observer
        yield RoomParts(
            store=store,
            join=Join(store, signer, observer, instance),
            wait=Wait(store, signer),
            enter=Enter(store, signer, observer),
            leave=Leave(store, observer),
            operate=Operate(store, settings.capacity),
            promoter=Promoter(store, observer, workers=settings.workers, queue=settings.queue),
            dispatcher=None
            if opened.entries is None
            else load(DISPATCHER)(
                store,
                opened.entries,
                signer,
                observer,
                batch=settings.batch,
                poll=settings.poll,
                abandoned=settings.take_over,
            ),
            away=opened.away,
            calls=opened.figures,
        )
    finally:
        await opened.close()


async def _signer(settings: Settings, store: RoomStore) -> JwtSigner:
    keys = [
        SigningKey(key.kid, key.secret.get_secret_value().encode()) for key in settings.rooms.keys
    ]
    if not keys:
        keys = [SigningKey("store", await store.secret(secrets.token_bytes(MIN_KEY)))]
    return JwtSigner(keys, settings.rooms.issuer)
