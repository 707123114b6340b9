-- Penstock's tables, version 2. Times are epoch milliseconds.
-- States: 0 scheduled, 1 leased, 2 delivered, 3 dead, 4 blocked, 5 expired, 6 cancelled.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE messages (
    seq            INTEGER PRIMARY KEY,
    id             TEXT NOT NULL UNIQUE,
    route          TEXT NOT NULL,
    key            TEXT,                       -- NULL: the same as the id
    payload        BLOB,                       -- NULL once delivered
    content_type   TEXT,                       -- NULL: application/json
    headers        TEXT,                       -- JSON object
    labels         TEXT,                       -- JSON object
    topic          TEXT,
    due            INTEGER NOT NULL,
    expires        INTEGER,
    priority       INTEGER NOT NULL,
    state          INTEGER NOT NULL DEFAULT 0,
    version        INTEGER NOT NULL DEFAULT 1,
    attempt        INTEGER NOT NULL DEFAULT 0,
    attempt_floor  INTEGER NOT NULL DEFAULT 0,
    created        INTEGER NOT NULL,
    claimed        INTEGER,                    -- of the lease under way, or the one that ended it
    settled        INTEGER,
    lease          INTEGER,                    -- token of the lease under way
    last_error     TEXT,
    cancel_pending INTEGER NOT NULL DEFAULT 0,
    decided        TEXT                        -- the last refusal by policies: JSON array
);

-- What claims read. The id at the end makes pages of a million messages with one due cheap.
CREATE INDEX scheduled ON messages (route, priority, due, id) WHERE state = 0;

-- What lists of the settled read; it grows only when a message is settled, nearly in order.
CREATE INDEX settled ON messages (state, route, due, id) WHERE state >= 2;

-- Only messages whose key is not their id pay for this one.
CREATE INDEX keyed ON messages (key, due) WHERE key IS NOT NULL;

-- One row a claim, not one a message: `seqs` is a JSON array, `open` how many are not settled.
CREATE TABLE leases (
    token INTEGER PRIMARY KEY,
    route TEXT NOT NULL,
    until INTEGER NOT NULL,
    open  INTEGER NOT NULL,
    seqs  TEXT NOT NULL
);
CREATE INDEX lease_ends ON leases (until);

-- One row a batch of settled messages: the queue that purge takes from.
-- `total` counts all that were ever retired up to and with this row.
CREATE TABLE retired (
    n     INTEGER PRIMARY KEY,
    at    INTEGER NOT NULL,
    count INTEGER NOT NULL,
    total INTEGER NOT NULL,
    seqs  TEXT NOT NULL
);

-- What the columns of a message cannot tell: retries, deferrals, lost leases, edits.
CREATE TABLE events (
    seq     INTEGER NOT NULL,
    n       INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    event   TEXT NOT NULL,
    detail  TEXT,
    attempt INTEGER,
    PRIMARY KEY (seq, n)
) WITHOUT ROWID;

CREATE TABLE paused (
    route TEXT PRIMARY KEY
) WITHOUT ROWID;

-- What decisions are made by. `born` marks the counters of a policy: one that is dropped and put
-- again counts anew. The version is in meta.
CREATE TABLE policies (
    id   TEXT PRIMARY KEY,
    born INTEGER NOT NULL,
    body TEXT NOT NULL                         -- JSON
) WITHOUT ROWID;

CREATE TABLE suppressions (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL                         -- JSON without the keys
) WITHOUT ROWID;

CREATE TABLE suppressed (
    key  TEXT NOT NULL,
    list TEXT NOT NULL,
    PRIMARY KEY (key, list)
) WITHOUT ROWID;
CREATE INDEX suppressed_by_list ON suppressed (list, key);

-- Counters: all of one key in one row. `stale` is the day (since 1970) from which nothing in it
-- can matter any more. The number of the last change of these and of holds is in meta.
CREATE TABLE accounts (
    name     TEXT PRIMARY KEY,
    stale    INTEGER NOT NULL,
    counters BLOB NOT NULL                     -- msgpack
) WITHOUT ROWID;

-- Places that messages on their way hold in counters: one row a batch that was decided,
CREATE TABLE holds (
    n      INTEGER PRIMARY KEY,
    until  INTEGER NOT NULL,
    places BLOB NOT NULL                       -- msgpack
);
-- and those of its messages that have ended, until all have.
CREATE TABLE ended (
    n   INTEGER NOT NULL,
    at  INTEGER NOT NULL,
    ids BLOB NOT NULL,                         -- msgpack
    PRIMARY KEY (n, at)
) WITHOUT ROWID;

CREATE TABLE paces (
    name  TEXT PRIMARY KEY,
    state BLOB NOT NULL                        -- msgpack
) WITHOUT ROWID;

-- What each process last said of itself.
CREATE TABLE heartbeats (
    id   TEXT PRIMARY KEY,
    seen INTEGER NOT NULL,
    body BLOB NOT NULL                         -- msgpack
) WITHOUT ROWID;
