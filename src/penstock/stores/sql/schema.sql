-- Penstock's tables, version 4. Times are epoch milliseconds.
-- States: 0 scheduled, 1 leased, 2 delivered, 3 dead, 4 blocked, 5 expired, 6 cancelled.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) {by_key};

CREATE TABLE messages (
    seq            {serial},
    id             TEXT NOT NULL UNIQUE,
    route          TEXT NOT NULL,
    key            TEXT,                       -- NULL: the same as the id
    payload        {blob},                       -- NULL once delivered
    content_type   TEXT,                       -- NULL: application/json
    headers        TEXT,                       -- JSON object
    labels         TEXT,                       -- JSON object
    topic          TEXT,
    due            BIGINT NOT NULL,
    expires        BIGINT,
    priority       BIGINT NOT NULL,
    state          BIGINT NOT NULL DEFAULT 0,
    version        BIGINT NOT NULL DEFAULT 1,
    attempt        BIGINT NOT NULL DEFAULT 0,
    attempt_floor  BIGINT NOT NULL DEFAULT 0,
    created        BIGINT NOT NULL,
    claimed        BIGINT,                    -- of the lease under way, or the one that ended it
    settled        BIGINT,
    lease          BIGINT,                    -- token of the lease under way
    last_error     TEXT,
    cancel_pending BIGINT NOT NULL DEFAULT 0,
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
    token {int_key},
    route TEXT NOT NULL,
    until BIGINT NOT NULL,
    open  BIGINT NOT NULL,
    seqs  TEXT NOT NULL
);
CREATE INDEX lease_ends ON leases (until);

-- One row a batch of settled messages: the queue that purge takes from.
-- `total` counts all that were ever retired up to and with this row.
CREATE TABLE retired (
    n     {serial},
    at    BIGINT NOT NULL,
    count BIGINT NOT NULL,
    total BIGINT NOT NULL,
    seqs  TEXT NOT NULL
);

-- What the columns of a message cannot tell: retries, deferrals, lost leases, edits.
CREATE TABLE events (
    seq     BIGINT NOT NULL,
    n       BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    event   TEXT NOT NULL,
    detail  TEXT,
    attempt BIGINT,
    PRIMARY KEY (seq, n)
) {by_key};

CREATE TABLE paused (
    route TEXT PRIMARY KEY
) {by_key};

-- What decisions are made by. `born` marks the counters of a policy: one that is dropped and put
-- again counts anew. The version is in meta.
CREATE TABLE policies (
    id   TEXT PRIMARY KEY,
    born BIGINT NOT NULL,
    body TEXT NOT NULL                         -- JSON
) {by_key};

CREATE TABLE suppressions (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL                         -- JSON without the keys
) {by_key};

CREATE TABLE suppressed (
    key  TEXT NOT NULL,
    list TEXT NOT NULL,
    PRIMARY KEY (key, list)
) {by_key};
CREATE INDEX suppressed_by_list ON suppressed (list, key);

-- Counters: all of one key in one row. `stale` is the day (since 1970) from which nothing in it
-- can matter any more. The number of the last change of these and of holds is in meta.
CREATE TABLE accounts (
    name     TEXT PRIMARY KEY,
    stale    BIGINT NOT NULL,
    counters {blob} NOT NULL                     -- msgpack
) {by_key};

-- Places that messages on their way hold in counters: one row a batch that was decided,
CREATE TABLE holds (
    n      {int_key},
    until  BIGINT NOT NULL,
    places {blob} NOT NULL                       -- msgpack
);
-- and those of its messages that have ended, until all have.
CREATE TABLE ended (
    n   BIGINT NOT NULL,
    at  BIGINT NOT NULL,
    ids {blob} NOT NULL,                         -- msgpack
    PRIMARY KEY (n, at)
) {by_key};

CREATE TABLE paces (
    name  TEXT PRIMARY KEY,
    state {blob} NOT NULL                        -- msgpack
) {by_key};

-- What each process last said of itself.
CREATE TABLE heartbeats (
    id   TEXT PRIMARY KEY,
    seen BIGINT NOT NULL,
    body {blob} NOT NULL                         -- msgpack
) {by_key};

-- Recurring rules.
CREATE TABLE recurring (
    id       TEXT PRIMARY KEY,
    revision BIGINT NOT NULL,                 -- what compare-and-set looks at
    wake     BIGINT,                          -- when to look at it; NULL: never
    managed  BIGINT NOT NULL,                 -- 1: it goes when it is gone from the settings
    body     {blob} NOT NULL                  -- JSON of recurrence.RuleRow
) {by_key};
CREATE INDEX recurring_wake ON recurring (wake) WHERE wake IS NOT NULL;
CREATE INDEX recurring_managed ON recurring (id) WHERE managed = 1;

-- Waiting rooms. Messages know nothing of them.
CREATE TABLE rooms (
    id       {serial},
    name     TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,                    -- JSON of RoomSettings
    state    TEXT NOT NULL,
    epoch    BIGINT NOT NULL,
    tally    TEXT NOT NULL,                    -- JSON of room_steps.Tally
    due      BIGINT                           -- when to look at it; NULL: when somebody comes
);
CREATE INDEX rooms_due ON rooms (due) WHERE due IS NOT NULL;

-- In the order in which people came: those who are let in together lie together.
CREATE TABLE room_tickets (
    id       {serial},
    room     BIGINT NOT NULL,
    visitor  TEXT NOT NULL,
    kind     BIGINT NOT NULL,                 -- 0 waiting, 1 holds a slot, 2 ended
    until    BIGINT,                          -- waiting: last seen; holding: end; ended: forget
    state    TEXT NOT NULL,
    lane     TEXT NOT NULL,
    number   BIGINT NOT NULL,
    joined   BIGINT NOT NULL,
    promoted BIGINT,
    entered  BIGINT,
    pass     TEXT NOT NULL,
    instance TEXT NOT NULL,
    UNIQUE (room, visitor)
);
CREATE INDEX room_tickets_line ON room_tickets (room, lane, number, visitor, kind) WHERE kind = 0;
CREATE INDEX room_tickets_until ON room_tickets (room, kind, until, visitor);

-- How many wait in each block of places, and in each lane.
CREATE TABLE room_blocks (
    room    BIGINT NOT NULL,
    lane    TEXT NOT NULL,
    block   BIGINT NOT NULL,
    waiting BIGINT NOT NULL,
    PRIMARY KEY (room, lane, block)
) {by_key};
CREATE TABLE room_lanes (
    room    BIGINT NOT NULL,
    lane    TEXT NOT NULL,
    waiting BIGINT NOT NULL,
    PRIMARY KEY (room, lane)
) {by_key};

CREATE TABLE room_secrets (
    name   TEXT PRIMARY KEY,
    secret {blob} NOT NULL
) {by_key};
