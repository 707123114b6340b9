"""Every statement on policies, suppressions and counters, by name."""

from __future__ import annotations

from typing import Final

VERSION: Final = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'policies'"
NEXT_VERSION: Final = """
INSERT INTO meta (name, value) VALUES ('policies', '1')
ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1
RETURNING CAST(value AS INTEGER)
"""

# --- policies and suppressions

POLICIES: Final = "SELECT id, born, body FROM policies ORDER BY id"
PUT_POLICY: Final = """
INSERT INTO policies (id, born, body) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET body = excluded.body
"""
DROP_POLICY: Final = "DELETE FROM policies WHERE id = ?"
SUPPRESSIONS: Final = "SELECT id, body FROM suppressions ORDER BY id"
PUT_SUPPRESSION: Final = """
INSERT INTO suppressions (id, body) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET body = excluded.body
"""
DROP_SUPPRESSION: Final = "DELETE FROM suppressions WHERE id = ?"
HAS_SUPPRESSION: Final = "SELECT 1 FROM suppressions WHERE id = ?"
SUPPRESS: Final = "INSERT INTO suppressed (key, list) VALUES (?, ?) ON CONFLICT DO NOTHING"
UNSUPPRESS: Final = "DELETE FROM suppressed WHERE key = ? AND list = ?"
DROP_SUPPRESSED: Final = "DELETE FROM suppressed WHERE list = ?"
SUPPRESSED_ON: Final = "SELECT key FROM suppressed WHERE list = ? ORDER BY key"
SUPPRESSED: Final = """
SELECT key, list FROM suppressed WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key, list
"""

# --- counters

# Another number: another connection has written to the file since.
DATA_VERSION: Final = "PRAGMA data_version"
# The last change of accounts or holds, whoever made it.
LEDGER: Final = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'ledger'"
SET_LEDGER: Final = """
INSERT INTO meta (name, value) VALUES ('ledger', ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
ACCOUNTS: Final = """
SELECT name, counters FROM accounts WHERE name IN (SELECT value FROM json_each(?))
"""


def put_accounts(rows: int) -> str:
    values = ", ".join(["(?, ?, ?)"] * rows)
    return (
        f"INSERT INTO accounts (name, stale, counters) VALUES {values}"  # noqa: S608 - constants
        " ON CONFLICT (name) DO UPDATE SET stale = excluded.stale, counters = excluded.counters"
    )


SCAN: Final = "SELECT name, stale FROM accounts WHERE name > ? ORDER BY name LIMIT ?"
DROP_ACCOUNTS: Final = "DELETE FROM accounts WHERE name IN (SELECT value FROM json_each(?))"
HOLDS: Final = "SELECT n, until, places FROM holds ORDER BY n"
ADD_HOLDS: Final = "INSERT INTO holds (n, until, places) VALUES (?, ?, ?)"
DROP_HOLDS: Final = "DELETE FROM holds WHERE n = ?"
ENDED: Final = "SELECT n, ids FROM ended"
END_HOLDS: Final = "INSERT INTO ended (n, at, ids) VALUES (?, ?, ?)"
DROP_ENDED: Final = "DELETE FROM ended WHERE n = ?"
PACES: Final = "SELECT name, state FROM paces WHERE name IN (SELECT value FROM json_each(?))"
PUT_PACE: Final = """
INSERT INTO paces (name, state) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET state = excluded.state
"""
DROP_PACE: Final = "DELETE FROM paces WHERE name = ?"
