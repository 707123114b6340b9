-- Waiting rooms. Made when rooms are first used; messages know nothing of them.

CREATE TABLE IF NOT EXISTS rooms (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  settings TEXT NOT NULL,          -- JSON of RoomSettings
  state TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  in_use INTEGER NOT NULL,
  number INTEGER NOT NULL,         -- the last place given
  joined INTEGER NOT NULL,
  promoted INTEGER NOT NULL,
  admitted INTEGER NOT NULL,
  entered INTEGER NOT NULL,
  gone_left INTEGER NOT NULL,
  gone_expired INTEGER NOT NULL,
  gone_revoked INTEGER NOT NULL,
  credit INTEGER NOT NULL,
  credit_at INTEGER NOT NULL,
  attended INTEGER NOT NULL,
  floor INTEGER NOT NULL,
  shares TEXT NOT NULL,            -- JSON of LaneShares
  flow TEXT NOT NULL,              -- JSON of Flow
  due INTEGER                      -- when to look at it; NULL: when somebody comes
);
CREATE INDEX IF NOT EXISTS rooms_due ON rooms (due) WHERE due IS NOT NULL;

-- In the order in which people came: those who are let in together lie together.
CREATE TABLE IF NOT EXISTS room_tickets (
  id INTEGER PRIMARY KEY,
  room INTEGER NOT NULL,
  user TEXT NOT NULL,
  kind INTEGER NOT NULL,           -- 0 waiting, 1 holds a slot, 2 ended
  until INTEGER,                   -- waiting: last seen; holding: end; ended: when to forget
  state TEXT NOT NULL,
  lane TEXT NOT NULL,
  number INTEGER NOT NULL,
  joined INTEGER NOT NULL,
  promoted INTEGER,
  entered INTEGER,
  pass TEXT NOT NULL,
  instance TEXT NOT NULL,
  UNIQUE (room, user)
);
CREATE INDEX IF NOT EXISTS room_tickets_line ON room_tickets (room, lane, number, user, kind)
  WHERE kind = 0;
CREATE INDEX IF NOT EXISTS room_tickets_until ON room_tickets (room, kind, until, user);

-- How many wait in each block of places: a place is found without counting everybody before it.
CREATE TABLE IF NOT EXISTS room_blocks (
  room INTEGER NOT NULL,
  lane TEXT NOT NULL,
  block INTEGER NOT NULL,
  waiting INTEGER NOT NULL,
  PRIMARY KEY (room, lane, block)
) WITHOUT ROWID;

-- How many wait in each lane: known without adding up its blocks.
CREATE TABLE IF NOT EXISTS room_lanes (
  room INTEGER NOT NULL,
  lane TEXT NOT NULL,
  waiting INTEGER NOT NULL,
  PRIMARY KEY (room, lane)
) WITHOUT ROWID;
INSERT OR IGNORE INTO room_lanes (room, lane, waiting)  -- of a file made before there was this
  SELECT room, lane, sum(waiting) FROM room_blocks GROUP BY room, lane;

-- What the epochs that a reset has ended came to; a room that was never reset has no row.
CREATE TABLE IF NOT EXISTS room_past (
  room INTEGER PRIMARY KEY,
  joined INTEGER NOT NULL,
  promoted INTEGER NOT NULL,
  gone_left INTEGER NOT NULL,
  gone_expired INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS room_secrets (name TEXT PRIMARY KEY, secret BLOB NOT NULL);
