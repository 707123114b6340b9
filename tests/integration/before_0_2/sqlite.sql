PRAGMA journal_mode = WAL;
PRAGMA application_id = 1346719315;
PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE accounts (
    name     TEXT PRIMARY KEY,
    stale    INTEGER NOT NULL,
    counters BLOB NOT NULL                     
) WITHOUT ROWID;
CREATE TABLE ended (
    n   INTEGER NOT NULL,
    at  INTEGER NOT NULL,
    ids BLOB NOT NULL,                         
    PRIMARY KEY (n, at)
) WITHOUT ROWID;
CREATE TABLE events (
    seq     INTEGER NOT NULL,
    n       INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    event   TEXT NOT NULL,
    detail  TEXT,
    attempt INTEGER,
    PRIMARY KEY (seq, n)
) WITHOUT ROWID;
CREATE TABLE holds (
    n      INTEGER PRIMARY KEY,
    until  INTEGER NOT NULL,
    places BLOB NOT NULL                       
);
CREATE TABLE leases (
    token INTEGER PRIMARY KEY,
    route TEXT NOT NULL,
    until INTEGER NOT NULL,
    open  INTEGER NOT NULL,
    seqs  TEXT NOT NULL
);
CREATE TABLE messages (
    seq            INTEGER PRIMARY KEY,
    id             TEXT NOT NULL UNIQUE,
    route          TEXT NOT NULL,
    key            TEXT,                       
    payload        BLOB,                       
    content_type   TEXT,                       
    headers        TEXT,                       
    labels         TEXT,                       
    topic          TEXT,
    due            INTEGER NOT NULL,
    expires        INTEGER,
    priority       INTEGER NOT NULL,
    state          INTEGER NOT NULL DEFAULT 0,
    version        INTEGER NOT NULL DEFAULT 1,
    attempt        INTEGER NOT NULL DEFAULT 0,
    attempt_floor  INTEGER NOT NULL DEFAULT 0,
    created        INTEGER NOT NULL,
    claimed        INTEGER,                    
    settled        INTEGER,
    lease          INTEGER,                    
    last_error     TEXT,
    cancel_pending INTEGER NOT NULL DEFAULT 0,
    decided        TEXT                        
);
INSERT INTO "messages" VALUES(1,'old-1','hook','ann',X'7B226E223A317D',NULL,NULL,NULL,NULL,1826572549668,NULL,5,0,1,0,0,1795036549668,NULL,NULL,NULL,NULL,0,NULL);
INSERT INTO "messages" VALUES(2,'old-2','hook',NULL,X'7B226E223A327D',NULL,NULL,NULL,NULL,1795040149673,NULL,5,0,1,0,0,1795036549673,NULL,NULL,NULL,NULL,0,NULL);
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "meta" VALUES('epoch','1');
INSERT INTO "meta" VALUES('policies','1');
INSERT INTO "meta" VALUES('schema_version','2');
INSERT INTO "meta" VALUES('total_partitions','8');
CREATE TABLE paces (
    name  TEXT PRIMARY KEY,
    state BLOB NOT NULL                        
) WITHOUT ROWID;
CREATE TABLE paused (
    route TEXT PRIMARY KEY
) WITHOUT ROWID;
CREATE TABLE policies (
    id   TEXT PRIMARY KEY,
    born INTEGER NOT NULL,
    body TEXT NOT NULL                         
) WITHOUT ROWID;
INSERT INTO "policies" VALUES('three',1,'{"kind":"cap","scope":["key"],"limit":3,"window":"24h"}');
CREATE TABLE retired (
    n     INTEGER PRIMARY KEY,
    at    INTEGER NOT NULL,
    count INTEGER NOT NULL,
    total INTEGER NOT NULL,
    seqs  TEXT NOT NULL
);
CREATE TABLE room_blocks (
  room INTEGER NOT NULL,
  lane TEXT NOT NULL,
  block INTEGER NOT NULL,
  waiting INTEGER NOT NULL,
  PRIMARY KEY (room, lane, block)
) WITHOUT ROWID;
INSERT INTO "room_blocks" VALUES(1,'default',8589934592,1);
CREATE TABLE room_lanes (
  room INTEGER NOT NULL,
  lane TEXT NOT NULL,
  waiting INTEGER NOT NULL,
  PRIMARY KEY (room, lane)
) WITHOUT ROWID;
INSERT INTO "room_lanes" VALUES(1,'default',1);
CREATE TABLE room_past (
  room INTEGER PRIMARY KEY,
  joined INTEGER NOT NULL,
  promoted INTEGER NOT NULL,
  gone_left INTEGER NOT NULL,
  gone_expired INTEGER NOT NULL
);
CREATE TABLE room_secrets (name TEXT PRIMARY KEY, secret BLOB NOT NULL);
INSERT INTO "room_secrets" VALUES('entry-token',X'3F1EBD42002C4BD1AF348D1FBDBE92D610E2DD4F2AF2DA96816FE03B56EF0F25');
CREATE TABLE room_tickets (
  id INTEGER PRIMARY KEY,
  room INTEGER NOT NULL,
  user TEXT NOT NULL,
  kind INTEGER NOT NULL,           
  until INTEGER,                   
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
INSERT INTO "room_tickets" VALUES(1,1,'u1',0,1795036549689,'WAITING','default',2199023255553,1795036549689,NULL,NULL,'','vm');
CREATE TABLE rooms (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  settings TEXT NOT NULL,          
  state TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  in_use INTEGER NOT NULL,
  number INTEGER NOT NULL,         
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
  shares TEXT NOT NULL,            
  flow TEXT NOT NULL,              
  due INTEGER                      
);
INSERT INTO "rooms" VALUES(1,'sale','{"capacity":3,"admit_rate":null,"claim_ttl":120000,"session_ttl":600000,"wait_grace":90000,"expire_outside":false,"lanes":{"default":1},"lottery":false,"seed":"","opens_at":null,"public":false}','open',1,0,2199023255553,1,0,0,0,0,0,0,0,0,1795036549687,0,'{}','{}',1795036549689);
CREATE TABLE suppressed (
    key  TEXT NOT NULL,
    list TEXT NOT NULL,
    PRIMARY KEY (key, list)
) WITHOUT ROWID;
CREATE TABLE suppressions (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL                         
) WITHOUT ROWID;
CREATE INDEX scheduled ON messages (route, priority, due, id) WHERE state = 0;
CREATE INDEX settled ON messages (state, route, due, id) WHERE state >= 2;
CREATE INDEX keyed ON messages (key, due) WHERE key IS NOT NULL;
CREATE INDEX lease_ends ON leases (until);
CREATE INDEX suppressed_by_list ON suppressed (list, key);
CREATE INDEX rooms_due ON rooms (due) WHERE due IS NOT NULL;
CREATE INDEX room_tickets_line ON room_tickets (room, lane, number, user, kind)
  WHERE kind = 0;
CREATE INDEX room_tickets_until ON room_tickets (room, kind, until, user);
COMMIT;
