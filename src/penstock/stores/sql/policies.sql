-- Policies, suppressions, counters, paces.

-- rules_version: The version of policies and suppressions.
SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'policies'

-- policies: Every policy.
SELECT id, born, body FROM policies ORDER BY id

-- put_policy: Write a policy; one that was there keeps its counters.
INSERT INTO policies (id, born, body) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET body = excluded.body

-- drop_policy: Forget a policy.
DELETE FROM policies WHERE id = ?

-- suppressions: Every list, without its keys.
SELECT id, body FROM suppressions ORDER BY id

-- put_suppression: Write a list, without its keys.
INSERT INTO suppressions (id, body) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body

-- drop_suppression: Forget a list.
DELETE FROM suppressions WHERE id = ?

-- has_suppression: Whether there is such a list.
SELECT 1 FROM suppressions WHERE id = ?

-- suppress: Put a key on a list.
INSERT INTO suppressed (key, list) VALUES (?, ?) ON CONFLICT (key, list) DO NOTHING

-- unsuppress: Take a key off a list.
DELETE FROM suppressed WHERE key = ? AND list = ?

-- drop_suppressed: Take every key off a list.
DELETE FROM suppressed WHERE list = ?

-- suppressed_on: The keys of a list.
SELECT key FROM suppressed WHERE list = ? ORDER BY key

-- suppressed: The lists on which keys are.
SELECT key, list FROM suppressed WHERE key IN (SELECT value FROM {each:keys} AS listed)
ORDER BY key, list

-- ledger_mark: The mark of the last change of accounts or reservations, whoever made it.
SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'ledger'

-- accounts: The counters of accounts.
SELECT name, counters FROM accounts WHERE name IN (SELECT value FROM {each:names} AS listed)

-- put_account: Write the counters of an account.
INSERT INTO accounts (name, stale, counters) {rows:TEXT BIGINT BYTEA}
ON CONFLICT (name) DO UPDATE SET stale = excluded.stale, counters = excluded.counters

-- scan_accounts: The next accounts in order of their names.
SELECT name, stale FROM accounts WHERE name > ? ORDER BY name LIMIT ?

-- drop_accounts: Forget accounts.
DELETE FROM accounts WHERE name IN (SELECT value FROM {each:names} AS listed)

-- reservations: What batches on their way have reserved.
SELECT n, until, places FROM holds ORDER BY n

-- add_reservations: What one batch has reserved.
INSERT INTO holds (n, until, places) VALUES (?, ?, ?)

-- drop_reservations: Every message of the batch has ended.
DELETE FROM holds WHERE n = ?

-- ended: Messages of batches that have ended before the others.
SELECT n, ids FROM ended

-- add_ended: Messages of a batch have ended.
INSERT INTO ended (n, at, ids) VALUES (?, ?, ?)

-- drop_ended: Every message of the batch has ended.
DELETE FROM ended WHERE n = ?

-- paces: The states of paces.
SELECT name, state FROM paces WHERE name IN (SELECT value FROM {each:names} AS listed)

-- put_pace: Write the state of a pace.
INSERT INTO paces (name, state) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state

-- drop_pace: Forget a pace.
DELETE FROM paces WHERE name = ?
