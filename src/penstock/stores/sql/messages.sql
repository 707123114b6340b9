-- Messages: put, claim, settle, amend, find, purge; and what is known of routes.
-- {extras}, {extra_values} and {set_extras} are the columns of what few messages have (`messages.py`).
-- States: 0 scheduled, 1 leased, 2 delivered, 3 dead, 4 blocked, 5 expired, 6 cancelled.

-- columns: A message, in the order `to_message` reads it.
seq, id, route, key, payload, content_type, headers, {extras}, due, expires, priority,
state, version, attempt, attempt_floor, created, claimed, settled, last_error, cancel_pending, decided

-- leased_columns: The same as `lifecycle.lease` leaves it under a lease taken now.
seq, id, route, key, payload, content_type, headers, {extras}, due, expires, priority,
1, version, attempt + 1, attempt_floor, created, CAST(:now AS BIGINT), settled, last_error,
cancel_pending, decided

-- light_columns: A record without payload and headers, for steps that do not read them.
seq, id, route, key, NULL, content_type, NULL, {extras}, due, expires, priority,
state, version, attempt, attempt_floor, created, claimed, settled, last_error, cancel_pending, decided,
lease

-- of_seqs: The messages of a list.
seq IN (SELECT value FROM {each_int:seqs} AS listed)

-- put: The copy of `lifecycle.put` of a new id.
INSERT INTO messages (id, route, key, payload, content_type, headers, {extras}, due, expires,
                      priority, created)
VALUES (?, ?, ?, ?, ?, ?, {extra_values}, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING

-- put_plain: The same of messages whose key is the id, and that have nothing unusual.
-- A value that is not named costs nothing; a NULL that is bound costs more than a text.
INSERT INTO messages (id, route, payload, due, priority, created)
{rows:TEXT TEXT BYTEA BIGINT BIGINT BIGINT} ON CONFLICT (id) DO NOTHING

-- put_keyed: The same of messages with a key of their own.
INSERT INTO messages (id, route, payload, due, priority, created, key)
{rows:TEXT TEXT BYTEA BIGINT BIGINT BIGINT TEXT} ON CONFLICT (id) DO NOTHING

-- last_seq: The number of the newest message.
SELECT coalesce(max(seq), 0) FROM messages

-- ids_after: Those of the ids that came after a number.
SELECT id FROM messages WHERE id IN (SELECT value FROM {each:ids} AS listed) AND seq > :seq

-- known: The records of ids, without what may be large.
SELECT {light_columns} FROM messages WHERE id IN (SELECT value FROM {each:ids} AS listed) {lock}

-- records: The records of ids.
SELECT {columns}, lease FROM messages WHERE id IN (SELECT value FROM {each:ids} AS listed) {lock}

-- found: The messages of ids.
SELECT {columns} FROM messages WHERE id IN (SELECT value FROM {each:ids} AS listed)

-- due_head: What is due of one priority.
SELECT {leased_columns} FROM messages {index:scheduled}
WHERE state = 0 AND route = :route AND priority = {priority} AND due <= :now
ORDER BY due, id LIMIT :limit

-- due: What a claim takes, the highest priority first.
-- Ten bounded looks at the index: what is pending, here or on other routes, costs nothing.
SELECT * FROM ({priorities:due_head}) AS heads LIMIT :limit

-- next_head: The first of one priority.
SELECT due FROM messages {index:scheduled}
WHERE state = 0 AND route = :route AND priority = {priority} ORDER BY due, id LIMIT 1

-- next_due: When the route's next message is due.
SELECT min(due) FROM ({priorities:next_head}) AS heads

-- chosen: Messages of a list as a lease taken now leaves them.
SELECT {leased_columns} FROM messages WHERE {of_seqs}

-- lease: The copy of `lifecycle.lease`.
-- Rows are read first, then written without RETURNING, which would gather every row a second time.
UPDATE messages SET state = 1, lease = :token, attempt = attempt + 1, claimed = :now WHERE {of_seqs}

-- add_lease: One row for the whole claim.
INSERT INTO leases (token, route, until, open, seqs) VALUES (?, ?, ?, ?, ?)

-- extend: A lease lasts longer.
UPDATE leases SET until = ? WHERE token = ?

-- ended_lease: The lease that ended first.
SELECT token, seqs FROM leases WHERE until <= ? ORDER BY until, token LIMIT 1 {skip_locked}

-- keep_rest_of_lease: The messages of a lease that are still to be taken back.
UPDATE leases SET seqs = ? WHERE token = ?

-- end_lease: The rest of the lease is settled together, as it mostly is.
DELETE FROM leases WHERE token = ? AND open <= ? RETURNING token

-- close_lease: So many messages of the lease are settled; how many are not.
UPDATE leases SET open = open - ? WHERE token = ? RETURNING open

-- drop_lease: Nothing of it is left.
DELETE FROM leases WHERE token = ?

-- lost: The messages that still are under a lease.
SELECT {light_columns} FROM messages WHERE {of_seqs} AND lease = :token {lock}

-- deliver: The copy of `lifecycle.settle` of the delivered.
UPDATE messages
SET state = 2, settled = :now, lease = NULL, payload = NULL, headers = NULL, cancel_pending = 0,
    decided = coalesce(:decided, decided)
WHERE {of_seqs} AND lease = :token
RETURNING seq

-- leases_of: The leases that messages are under, and whether a cancel is pending.
SELECT seq, lease, cancel_pending FROM messages WHERE {of_seqs} {lock}

-- progress: What every step may change.
due = :due, state = :state, version = :version, attempt = :attempt, attempt_floor = :attempt_floor,
claimed = :claimed, settled = :settled, lease = :lease, last_error = :last_error,
cancel_pending = :cancel_pending, decided = :decided

-- write: What a step leaves.
UPDATE messages SET {progress} WHERE seq = :seq

-- write_content: What a step leaves that changes payload, headers and the like.
UPDATE messages
SET route = :route, key = :key, payload = :payload, content_type = :content_type,
    headers = :headers, {set_extras}, expires = :expires,
    priority = :priority, {progress}
WHERE seq = :seq

-- add_event: A line of the timeline.
INSERT INTO events (seq, n, at, event, detail, attempt)
VALUES (:seq, (SELECT coalesce(max(n), 0) + 1 FROM events WHERE seq = :seq), :at, :event, :detail,
        :attempt)
RETURNING n

-- trim_events: The oldest lines of a long timeline go.
DELETE FROM events WHERE seq = ? AND n <= ?

-- last_events: The last line of each timeline.
SELECT seq, at, event, detail, attempt FROM events AS e
WHERE {of_seqs} AND n = (SELECT max(n) FROM events AS o WHERE o.seq = e.seq)

-- events: The timeline of a message.
SELECT at, event, detail, attempt FROM events WHERE seq = :seq ORDER BY n

-- retire: These are settled for good; `total` counts all that ever were, up to and with these.
INSERT INTO retired (at, count, total, seqs)
VALUES (:at, :count,
        coalesce((SELECT total FROM retired ORDER BY n DESC LIMIT 1), 0) + :count, :seqs)

-- oldest_retired: The next that a purge looks at, and how many there are in all.
SELECT n, at, count, seqs, (SELECT total FROM retired ORDER BY n DESC LIMIT 1) - total + count
FROM retired ORDER BY n LIMIT 1 {lock}

-- keep_rest_of_retired: The part that stays.
UPDATE retired SET count = ?, seqs = ? WHERE n = ?

-- drop_retired: Nothing of it is left.
DELETE FROM retired WHERE n = ?

-- retired_then: Those of a list that still are the messages settled at that time.
-- The number of a message that was removed may be given again: `settled` tells the two apart.
SELECT seq FROM messages WHERE {of_seqs} AND settled = :at

-- remove: Keep nothing of these messages.
DELETE FROM messages WHERE {of_seqs}

-- remove_events: Keep nothing of their timelines.
DELETE FROM events WHERE {of_seqs}

-- is_paused: Whether the route is paused.
SELECT 1 FROM paused WHERE route = ?

-- pause: Claim nothing of the route.
INSERT INTO paused (route) VALUES (?) ON CONFLICT (route) DO NOTHING

-- resume: Claim again.
DELETE FROM paused WHERE route = ?

-- paused: Every paused route.
SELECT route FROM paused

-- meta: A fact by its name.
SELECT value FROM meta WHERE name = ?

-- set_meta: Write a fact.
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- drop_meta: Forget a fact.
DELETE FROM meta WHERE name = ?

-- meta_names: The names of facts between two.
SELECT name FROM meta WHERE name > ? AND name < ? ORDER BY name

-- next_number: Count a fact up; the number it has then.
INSERT INTO meta (name, value) VALUES (?, '1')
ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT)
RETURNING CAST(value AS BIGINT)

-- holds_messages: Whether there is any message.
SELECT 1 FROM messages LIMIT 1
