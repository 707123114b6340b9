"""CONTACT: a process that gets no answers from the store claims nothing and keeps no lease."""

from __future__ import annotations

from penstock.ports.store import MessageStore


class Contact:
    """When the store last answered this worker, whatever it was asked.

    On a link where requests arrive and answers do not, every claim leases messages that nobody
    sends, and every extension keeps a lease whose end cannot be reported. Repeated for ever, they
    would keep these messages from every other process.
    """

    def __init__(self, store: MessageStore, lease: int) -> None:
        self._store = store
        self._clock = store.clock
        self._lease = lease
        self._answered_at = self._clock.now()

    def answered(self) -> None:
        """The store has just answered a call, or a part of it has."""
        self._answered_at = self._clock.now()

    async def ensure(self) -> None:
        """Before a call that must not be repeated for ever without an answer.

        Nothing is asked if the store answered within the last lease. Otherwise a reap as of the
        epoch, by which no lease has ended, must be answered first: it changes nothing, and any
        part of the store that is there answers it. StoreUnavailable: none did.
        """
        if not 0 <= self._clock.now() - self._answered_at < self._lease:
            await self._store.reap(0, 1)
            self.answered()
