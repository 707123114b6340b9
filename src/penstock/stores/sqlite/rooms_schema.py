"""The tables of waiting rooms: made when rooms are first used, brought up to date when opened."""

from __future__ import annotations

from importlib.resources import files

from penstock.stores.sqlite.session import Session

_TICKET = "room, user, kind, until, state, lane, number, joined, promoted, entered, pass, instance"
HAS_OLD_TICKETS = """
SELECT 1 FROM sqlite_schema WHERE name = 'room_tickets'
  AND NOT EXISTS (SELECT 1 FROM pragma_table_info('room_tickets') WHERE name = 'id')
"""
PUT_OLD_ASIDE = (
    "ALTER TABLE room_tickets RENAME TO room_tickets_by_user",
    "DROP INDEX room_tickets_line",
    "DROP INDEX room_tickets_until",
)
IN_THEIR_ORDER = f"""
INSERT INTO room_tickets ({_TICKET})
SELECT {_TICKET} FROM room_tickets_by_user ORDER BY room, number, user
"""  # noqa: S608 - constants only
TAKE_OLD_OVER = (IN_THEIR_ORDER, "DROP TABLE room_tickets_by_user")


def make_tables(session: Session) -> None:
    """In one transaction. Tickets of a file that kept them by user are put in their order."""
    old = session.execute(HAS_OLD_TICKETS).fetchone() is not None
    script = files("penstock.stores.sqlite").joinpath("rooms_schema.sql").read_text("utf-8")
    lines = [line.partition("--")[0] for line in script.splitlines()]
    statements = [text for text in "\n".join(lines).split(";") if text.strip()]
    for statement in (
        *(PUT_OLD_ASIDE if old else ()),
        *statements,
        *(TAKE_OLD_OVER if old else ()),
    ):
        session.execute(statement)
