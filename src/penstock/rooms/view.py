"""VIEW: a visitor's place as the API shows it to the visitor."""

from __future__ import annotations

import msgspec

from penstock.model.room_view import EnteredOut, TicketOut
from penstock.model.ticket import Ticket, TicketState
from penstock.model.times import format_moment
from penstock.rooms.wait import Place


def ticket_out(place: Place, *, secret: bool = False) -> TicketOut:
    ticket, outlook = place.ticket, place.outlook
    until = None if ticket.until is None else format_moment(ticket.until)
    return TicketOut(
        user=ticket.user,
        state=ticket.state,
        position=None if place.ahead is None else place.ahead + 1,
        ahead=place.ahead,
        eta=place.eta,
        poll_after_ms=place.poll_after,
        lane=ticket.lane,
        room=outlook.room.name,
        room_state=outlook.state,
        waiting=outlook.waiting.get(ticket.lane, 0),
        joined=format_moment(ticket.joined),
        token=place.token,
        claim_by=until if ticket.state is TicketState.ADMITTED else None,
        session_expires=until if ticket.state is TicketState.ENTERED else None,
        ticket=place.secret if secret else msgspec.UNSET,
    )


def entered_out(ticket: Ticket) -> EnteredOut:
    until = None if ticket.until is None else format_moment(ticket.until)
    return EnteredOut(user=ticket.user, state=ticket.state, session_expires=until)
