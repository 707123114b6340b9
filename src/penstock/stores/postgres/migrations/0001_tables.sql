-- Penstock's tables. Times are epoch milliseconds. Text sorts by code point, as Python's does.
-- States: 0 scheduled, 1 leased, 2 delivered, 3 dead, 4 blocked, 5 expired, 6 cancelled.

-- A few rows, changed all the time: half of each page stays free, so that a changed row stays on
-- its page and no index is touched (HOT).
CREATE TABLE meta (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value TEXT NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1);
INSERT INTO meta (name, value) VALUES ('horizon', '0');

CREATE SEQUENCE message_seq;
CREATE SEQUENCE history_seq;

-- What waits or is on its way, and the dead. A message that ends for good leaves in the transaction
-- that ends it, so this table is as large as what is pending. Vacuum comes early and does not
-- pause: a claim and a settle leave a dead row each, and claims walk over those in the index.
CREATE TABLE messages (
    seq            BIGINT PRIMARY KEY DEFAULT nextval('message_seq'),
    id             TEXT COLLATE "C" NOT NULL UNIQUE,
    route          TEXT COLLATE "C" NOT NULL,
    key            TEXT COLLATE "C",
    payload        BYTEA,
    content_type   TEXT,
    headers        TEXT,
    labels         TEXT,
    topic          TEXT COLLATE "C",
    due            BIGINT NOT NULL,
    expires        BIGINT,
    priority       BIGINT NOT NULL,
    state          BIGINT NOT NULL DEFAULT 0,
    version        BIGINT NOT NULL DEFAULT 1,
    attempt        BIGINT NOT NULL DEFAULT 0,
    attempt_floor  BIGINT NOT NULL DEFAULT 0,
    created        BIGINT NOT NULL,
    claimed        BIGINT,
    settled        BIGINT,
    lease          BIGINT,
    last_error     TEXT,
    cancel_pending BIGINT NOT NULL DEFAULT 0,
    decided        TEXT
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.05,
        autovacuum_vacuum_cost_delay = 0);

-- What claims read.
CREATE INDEX scheduled ON messages (route, priority, due, id) WHERE state = 0;
CREATE INDEX dead ON messages (state, route, due, id) WHERE state >= 2;
CREATE INDEX keyed ON messages (key, due) WHERE key IS NOT NULL;

-- What is settled for good; `n` is the order in which it was. It is only added to, and
-- goes by whole partitions once the horizon in meta has passed them: no row is deleted, no vacuum
-- needed. What a purge forgets is behind the horizon at once.
CREATE TABLE history (
    n              BIGINT PRIMARY KEY DEFAULT nextval('history_seq'),
    seq            BIGINT NOT NULL,
    id             TEXT COLLATE "C" NOT NULL,
    route          TEXT COLLATE "C" NOT NULL,
    key            TEXT COLLATE "C",
    payload        BYTEA,
    content_type   TEXT,
    headers        TEXT,
    labels         TEXT,
    topic          TEXT COLLATE "C",
    due            BIGINT NOT NULL,
    expires        BIGINT,
    priority       BIGINT NOT NULL,
    state          BIGINT NOT NULL,
    version        BIGINT NOT NULL,
    attempt        BIGINT NOT NULL,
    attempt_floor  BIGINT NOT NULL,
    created        BIGINT NOT NULL,
    claimed        BIGINT,
    settled        BIGINT,
    lease          BIGINT,
    last_error     TEXT,
    cancel_pending BIGINT NOT NULL,
    decided        TEXT,
    events         JSONB
) PARTITION BY RANGE (n);
CREATE INDEX history_seqs ON history (seq);
CREATE INDEX history_ids ON history (id);
CREATE INDEX history_lists ON history (state, route, due, id);
CREATE INDEX history_keys ON history (key, due) WHERE key IS NOT NULL;
-- Takes what comes before its partition is made.
CREATE TABLE history_rest PARTITION OF history DEFAULT;

-- Every message that is known, wherever it is.
CREATE VIEW known_messages AS
SELECT seq, id, route, key, payload, content_type, headers, labels, topic, due, expires, priority,
       state, version, attempt, attempt_floor, created, claimed, settled, last_error,
       cancel_pending, decided, lease
FROM messages
UNION ALL
SELECT seq, id, route, key, payload, content_type, headers, labels, topic, due, expires, priority,
       state, version, attempt, attempt_floor, created, claimed, settled, last_error,
       cancel_pending, decided, lease
FROM history WHERE n > (SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'horizon');

-- One row a claim: `seqs` is a JSON array, `open` how many are not settled. Short-lived.
CREATE TABLE leases (
    token BIGINT PRIMARY KEY,
    route TEXT COLLATE "C" NOT NULL,
    until BIGINT NOT NULL,
    open  BIGINT NOT NULL,
    seqs  TEXT NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX lease_ends ON leases (until);

-- What the columns of a message cannot tell; goes into its row of history with it.
CREATE TABLE events (
    seq     BIGINT NOT NULL,
    n       BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    event   TEXT NOT NULL,
    detail  TEXT,
    attempt BIGINT,
    PRIMARY KEY (seq, n)
);

CREATE TABLE paused (route TEXT COLLATE "C" PRIMARY KEY);

CREATE TABLE policies (
    id   TEXT COLLATE "C" PRIMARY KEY,
    born BIGINT NOT NULL,
    body TEXT NOT NULL
);
CREATE TABLE suppressions (
    id   TEXT COLLATE "C" PRIMARY KEY,
    body TEXT NOT NULL
);
CREATE TABLE suppressed (
    key  TEXT COLLATE "C" NOT NULL,
    list TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (key, list)
);
CREATE INDEX suppressed_by_list ON suppressed (list, key);

-- Counters: one row a key, written once a batch. No column but the name is indexed, so a changed
-- row stays on its page while there is room.
CREATE TABLE accounts (
    name     TEXT COLLATE "C" PRIMARY KEY,
    stale    BIGINT NOT NULL,
    counters BYTEA NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE TABLE holds (
    n      BIGINT PRIMARY KEY,
    until  BIGINT NOT NULL,
    places BYTEA NOT NULL
) WITH (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05);
CREATE TABLE ended (
    n   BIGINT NOT NULL,
    at  BIGINT NOT NULL,
    ids BYTEA NOT NULL,
    PRIMARY KEY (n, at)
) WITH (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05);
CREATE TABLE paces (
    name  TEXT COLLATE "C" PRIMARY KEY,
    state BYTEA NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200);

CREATE TABLE heartbeats (
    id   TEXT COLLATE "C" PRIMARY KEY,
    seen BIGINT NOT NULL,
    body BYTEA NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200);

-- Waiting rooms. The rows of rooms, lanes and blocks change with every step.
CREATE TABLE rooms (
    id       BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    name     TEXT COLLATE "C" NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    state    TEXT NOT NULL,
    epoch    BIGINT NOT NULL,
    tally    TEXT NOT NULL,
    due      BIGINT
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1);
CREATE INDEX rooms_due ON rooms (due) WHERE due IS NOT NULL;
CREATE TABLE room_tickets (
    id       BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    room     BIGINT NOT NULL,
    visitor  TEXT COLLATE "C" NOT NULL,
    kind     BIGINT NOT NULL,
    until    BIGINT,
    state    TEXT NOT NULL,
    lane     TEXT COLLATE "C" NOT NULL,
    number   BIGINT NOT NULL,
    joined   BIGINT NOT NULL,
    promoted BIGINT,
    entered  BIGINT,
    pass     TEXT NOT NULL,
    instance TEXT NOT NULL,
    UNIQUE (room, visitor)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX room_tickets_line ON room_tickets (room, lane, number, visitor) WHERE kind = 0;
CREATE INDEX room_tickets_until ON room_tickets (room, kind, until, visitor);
CREATE TABLE room_blocks (
    room    BIGINT NOT NULL,
    lane    TEXT COLLATE "C" NOT NULL,
    block   BIGINT NOT NULL,
    waiting BIGINT NOT NULL,
    PRIMARY KEY (room, lane, block)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500);
CREATE TABLE room_lanes (
    room    BIGINT NOT NULL,
    lane    TEXT COLLATE "C" NOT NULL,
    waiting BIGINT NOT NULL,
    PRIMARY KEY (room, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200);
CREATE TABLE room_secrets (
    name   TEXT COLLATE "C" PRIMARY KEY,
    secret BYTEA NOT NULL
);

-- Turns: routes that promise something per key. The triggers are made with the first such route.
CREATE TABLE keyed_routes (
    route     TEXT COLLATE "C" PRIMARY KEY,
    in_flight BIGINT NOT NULL,
    ordered   BIGINT NOT NULL
);
CREATE TABLE turns (
    route TEXT COLLATE "C" NOT NULL,
    key   TEXT COLLATE "C" NOT NULL,
    due   BIGINT,
    PRIMARY KEY (route, key)
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX turns_due ON turns (route, due, key);
