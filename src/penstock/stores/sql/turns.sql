-- Turns: routes that promise something per key. The tables and triggers are the dialect's.

-- is_begun: Sent or held back before; the copy of `lifecycle.has_begun`.
(m.attempt > m.attempt_floor OR m.decided IS NOT NULL)

-- of_key: The messages of a key whose route is k's.
m.route = k.route AND coalesce(m.key, m.id) = {0}

-- next_turn: When the key's next message may be claimed; NULL while its number is in flight.
-- In an ordered route whatever was begun (a retry, a deferral) comes first of its key.
CASE WHEN (SELECT count(*) FROM messages AS m {index:keys_leased}
           WHERE m.state = 1 AND {of_key:{0}}) < k.in_flight
     THEN coalesce(
         (SELECT m.due FROM messages AS m {index:keys_begun}
          WHERE k.ordered = 1 AND m.state = 0 AND {is_begun} AND {of_key:{0}}
          ORDER BY m.due, m.id LIMIT 1),
         (SELECT m.due FROM messages AS m {index:keys_waiting}
          WHERE m.state = 0 AND {of_key:{0}} ORDER BY m.due, m.id LIMIT 1))
END

-- take_turn: Reckon the turn of a row's key anew, in a trigger.
INSERT INTO turns (route, key, due)
SELECT k.route, coalesce({0}.key, {0}.id), {next_turn:coalesce({0}.key, {0}.id)}
FROM keyed_routes AS k WHERE k.route = {0}.route
ON CONFLICT (route, key) DO UPDATE SET due = excluded.due;
DELETE FROM turns WHERE route = {0}.route AND key = coalesce({0}.key, {0}.id) AND due IS NULL;

-- registered: The limits for which turns of the route are reckoned.
SELECT in_flight, ordered FROM keyed_routes WHERE route = ?

-- register: Reckon turns of the route.
INSERT INTO keyed_routes (route, in_flight, ordered) VALUES (?, ?, ?)
ON CONFLICT (route) DO UPDATE SET in_flight = excluded.in_flight, ordered = excluded.ordered

-- touch_route: Let the triggers reckon the turn of every key of the route.
UPDATE messages SET due = due WHERE route = ? AND state < 2

-- due_keys: Keys whose turn it is.
SELECT key FROM turns WHERE route = ? AND due <= ? ORDER BY due, key LIMIT ? {skip_locked}

-- size: The bytes of a message.
length(m.payload) + coalesce(length(m.headers), 0)

-- begun_of_key: The message of the key that was begun first.
SELECT m.seq, {size}, m.due FROM messages AS m {index:keys_begun}
WHERE m.state = 0 AND {is_begun} AND m.route = :route AND coalesce(m.key, m.id) = :key
ORDER BY m.due, m.id LIMIT 1

-- waiting_of_key: The next messages of the key.
SELECT m.seq, {size} FROM messages AS m {index:keys_waiting}
WHERE m.state = 0 AND m.route = :route AND coalesce(m.key, m.id) = :key AND m.due <= :now
ORDER BY m.due, m.id LIMIT :room

-- leased_of_key: How many of the key are in flight.
SELECT count(*) FROM messages WHERE state = 1 AND route = ? AND coalesce(key, id) = ?

-- next_turn_due: When the next turn of the route is.
SELECT min(due) FROM turns WHERE route = ?
