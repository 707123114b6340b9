-- SQLite's own: triggers that reckon turns. They exist only in files with a route that has turns.

-- has_turns: Whether the triggers are there.
SELECT 1 FROM sqlite_schema WHERE name = 'turn_after_delete'

-- turns_1: The routes that promise something per key.
CREATE TABLE keyed_routes (
    route TEXT PRIMARY KEY, in_flight BIGINT NOT NULL, ordered BIGINT NOT NULL
) WITHOUT ROWID

-- turns_2: When the next message of each key may be claimed.
CREATE TABLE turns (
    route TEXT NOT NULL, key TEXT NOT NULL, due BIGINT, PRIMARY KEY (route, key)
) WITHOUT ROWID

-- turns_3: The keys whose turn comes next.
CREATE INDEX turns_due ON turns (route, due, key)

-- turns_4: The scheduled of a key.
CREATE INDEX keys_waiting ON messages (route, coalesce(key, id), due, id) WHERE state = 0

-- turns_5: The begun of a key.
CREATE INDEX keys_begun ON messages (route, coalesce(key, id), due, id)
WHERE state = 0 AND (attempt > attempt_floor OR decided IS NOT NULL)

-- turns_6: The leased of a key.
CREATE INDEX keys_leased ON messages (route, coalesce(key, id)) WHERE state = 1

-- turns_7: A message comes.
CREATE TRIGGER turn_after_insert AFTER INSERT ON messages
WHEN EXISTS (SELECT 1 FROM keyed_routes WHERE route = NEW.route) BEGIN {take_turn:NEW} END

-- turns_8: A message changes.
CREATE TRIGGER turn_after_update AFTER UPDATE ON messages
WHEN NEW.state < 2 OR OLD.state < 2 BEGIN {take_turn:NEW} END

-- turns_9: A message changes its route or key.
CREATE TRIGGER turn_after_move AFTER UPDATE OF route, key ON messages
WHEN (OLD.route <> NEW.route OR OLD.key IS NOT NEW.key) BEGIN {take_turn:OLD} END

-- turns_10: A message goes.
CREATE TRIGGER turn_after_delete AFTER DELETE ON messages
WHEN OLD.state < 2 BEGIN {take_turn:OLD} END
