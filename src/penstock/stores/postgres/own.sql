-- PostgreSQL's own: what the shared files would say otherwise, and what only this database has.

-- of_seqs: The messages of a list.
seq = ANY (CAST(:seqs AS BIGINT[]))

-- of_ids: The messages of ids.
id = ANY (CAST(:ids AS TEXT[]))

-- horizon: What is settled and numbered up to here is forgotten.
(SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'horizon')

-- put_all: The copy of `lifecycle.put` of new ids.
INSERT INTO messages (id, route, key, payload, content_type, headers, {extras}, due, expires,
                      priority, created)
SELECT * FROM unnest(
    CAST(? AS TEXT[]), CAST(? AS TEXT[]), CAST(? AS TEXT[]), CAST(? AS BYTEA[]), CAST(? AS TEXT[]),
    CAST(? AS TEXT[]), {extra_arrays}, CAST(? AS BIGINT[]), CAST(? AS BIGINT[]),
    CAST(? AS BIGINT[]), CAST(? AS BIGINT[]))
ON CONFLICT (id) DO NOTHING RETURNING id

-- unput: Of ids that were just put, those that are settled already are not new.
-- Looked at afterwards: a put of an id that is just being settled waits for that transaction, and
-- only then can its row of history be seen.
-- OFFSET 0 keeps this a look at the index for each id: as a join, all of history would be read.
DELETE FROM messages AS m
USING (SELECT put.id FROM unnest(CAST(:ids AS TEXT[])) AS put(id)
       WHERE EXISTS (SELECT 1 FROM history AS h
                     WHERE h.id = put.id AND h.n > {horizon} OFFSET 0)) AS settled
WHERE m.id = settled.id RETURNING m.id

-- lock_ids: Wait for whoever changes these now, so that the next statement sees what they leave.
SELECT 1 FROM messages WHERE {of_ids} ORDER BY seq FOR UPDATE

-- known: The records of ids, without what may be large.
SELECT {light_columns} FROM known_messages WHERE {of_ids}

-- records: The records of ids.
SELECT {columns}, lease FROM known_messages WHERE {of_ids}

-- found: The messages of ids.
SELECT {columns} FROM known_messages WHERE {of_ids}

-- `due_head` and `deliver` say again what claim_due and deliver_leased do (0005_hot.sql): steps that
-- also claim keyed routes, retry, count, or follow a call that failed take these.

-- due_head: What is due of one priority, by the server's own time too, and nobody else claims now.
SELECT {leased_columns} FROM messages
WHERE state = 0 AND route = :route AND priority = {priority} AND due <= {clamped} AND {above_floor}
ORDER BY due, id LIMIT :limit FOR UPDATE SKIP LOCKED

-- above_floor: Behind what was claimed last of this priority, as far as that is known.
(due, id) > ((CAST(:floor_dues AS BIGINT[]))[{priority} + 1], (CAST(:floor_ids AS TEXT[]))[{priority} + 1])

-- next_head: The first of one priority.
SELECT due FROM messages
WHERE state = 0 AND route = :route AND priority = {priority} AND {above_floor}
ORDER BY due, id LIMIT 1

-- clamped: The caller's moment, or the server's where that is earlier: never early.
least(CAST(:now AS BIGINT), CAST(floor(extract(epoch FROM now()) * 1000) AS BIGINT))

-- chosen: Messages of a list as a lease taken now leaves them; not those that somebody changes now.
SELECT {leased_columns} FROM messages WHERE {of_seqs} AND state = 0 FOR UPDATE SKIP LOCKED

-- moved_columns: What a message takes along when it is settled for good.
seq, id, route, key, payload, content_type, headers, {extras}, due, expires, priority, state,
version, attempt, attempt_floor, created, claimed, settled, last_error, cancel_pending, decided,
events

-- events_of: The timeline of a message that leaves, as its row of history has it.
(SELECT jsonb_agg(jsonb_build_object('at', e.at, 'event', e.event, 'detail', e.detail,
                                     'attempt', e.attempt) ORDER BY e.n)
 FROM events AS e WHERE e.seq = gone.seq)

-- deliver: The copy of `lifecycle.settle` of the delivered: out of the hot table, into history.
WITH gone AS (
    DELETE FROM messages WHERE {of_seqs} AND lease = :token RETURNING *
), noted AS (
    DELETE FROM events WHERE seq IN (SELECT seq FROM gone)
), kept AS (
    INSERT INTO history ({moved_columns})
    SELECT seq, id, route, key, NULL, content_type, NULL, {extras}, due,
           expires, priority, 2, version, attempt, attempt_floor, created, claimed, :now,
           last_error, 0, coalesce(CAST(:decided AS TEXT), decided), {events_of}
    FROM gone
)
SELECT seq FROM gone

-- retire: These are settled for good: they go into history as they are.
WITH gone AS (
    DELETE FROM messages
    WHERE seq IN (SELECT CAST(value AS BIGINT)
                  FROM jsonb_array_elements_text(CAST(:seqs AS JSONB)) AS listed)
    RETURNING *
), noted AS (
    DELETE FROM events WHERE seq IN (SELECT seq FROM gone)
)
INSERT INTO history ({moved_columns})
SELECT seq, id, route, key, payload, content_type, headers, {extras}, due,
       expires, priority, state, version, attempt, attempt_floor, created, claimed, settled,
       last_error, cancel_pending, decided, {events_of}
FROM gone

-- events: The timeline of a message.
SELECT at, event, detail, attempt FROM (
    SELECT at, event, detail, attempt, n FROM events WHERE seq = :seq
    UNION ALL
    SELECT CAST(e.line ->> 'at' AS BIGINT), e.line ->> 'event', e.line ->> 'detail',
           CAST(e.line ->> 'attempt' AS BIGINT), e.n
    FROM history, jsonb_array_elements(events) WITH ORDINALITY AS e(line, n) WHERE seq = :seq
) AS lines ORDER BY n

-- remove: Keep nothing of these messages.
WITH settled AS (DELETE FROM history WHERE {of_seqs}) DELETE FROM messages WHERE {of_seqs}

-- purge_scan: The oldest that are known, in the order in which they were settled.
SELECT n, settled FROM history WHERE n > {horizon} ORDER BY n LIMIT ?

-- purge_rest: Forget what came before its partition was made.
DELETE FROM history_rest WHERE n <= {horizon}

-- set_horizon: Forget everything up to here, if it is not forgotten already.
UPDATE meta SET value = CAST(CAST(? AS BIGINT) AS TEXT)
WHERE name = 'horizon' AND CAST(value AS BIGINT) < ?

-- get_horizon: The number up to which everything is forgotten, for whoever moves it on.
SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'horizon' FOR UPDATE

-- history_parts: The partitions there are.
SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = CAST('history' AS REGCLASS) AND c.relname <> 'history_rest'

-- last_settled: The number that was given last to what is settled.
SELECT last_value FROM history_seq

-- is_in_rest: Whether something of this range came before its partition was made.
SELECT 1 FROM history_rest WHERE n >= ? AND n < ? LIMIT 1

-- routes_settled: The next route with a settled message of the state.
SELECT min(route) FROM known_messages WHERE state = ? AND state >= 2 AND route > ?

-- stream_settled: The settled of a state and route.
SELECT due, id, seq FROM known_messages
WHERE state = :state AND state >= 2 AND route = :route {where} {page}

-- stream_key: The messages of a key that is not their id.
SELECT due, id, seq FROM known_messages WHERE key = :key {where} {page}

-- stream_id: The message whose key is its id.
SELECT due, id, seq FROM known_messages WHERE id = :key AND key IS NULL {where} {page}

-- by_seqs: The messages of a page.
SELECT {columns} FROM known_messages WHERE {of_seqs}

-- sizes: The bytes of messages, which are not read for it.
SELECT seq, coalesce(length(payload), 0) + coalesce(length(headers), 0) FROM known_messages
WHERE {of_seqs}

-- count_settled: What each route has settled, by state.
SELECT state, route, count(*) FROM known_messages WHERE state >= 2 GROUP BY state, route

-- has_turns: Whether the triggers are there.
SELECT 1 FROM pg_trigger WHERE tgrelid = CAST('messages' AS REGCLASS) AND tgname = 'turn_after'

-- lock_route_turns: Turns of a route are reckoned by one transaction at a time.
SELECT pg_advisory_xact_lock(CAST(CAST('turns' AS REGCLASS) AS INT), hashtext(CAST(? AS TEXT)))

-- keyed: The routes whose turns are locked by whatever changes their messages.
SELECT route FROM keyed_routes

-- routes_of_ids: The routes of messages that are about to be changed.
SELECT DISTINCT route FROM messages WHERE {of_ids}

-- routes_of_tokens: The routes of leases.
SELECT DISTINCT route FROM leases WHERE token = ANY (CAST(:tokens AS BIGINT[]))

-- routes_of_ended: The routes of leases that have ended.
SELECT DISTINCT route FROM leases WHERE until <= :now

-- lock_ddl: One process makes the triggers.
SELECT pg_advisory_xact_lock(CAST(CAST('turns' AS REGCLASS) AS INT), 0)

-- lock_counters: Counters are read and written by one transaction at a time, in any process.
SELECT pg_advisory_xact_lock(CAST(CAST('accounts' AS REGCLASS) AS INT), 0)

-- turns_1: The scheduled of a key.
CREATE INDEX keys_waiting ON messages (route, (coalesce(key, id)), due, id) WHERE state = 0

-- turns_2: The begun of a key.
CREATE INDEX keys_begun ON messages (route, (coalesce(key, id)), due, id)
WHERE state = 0 AND (attempt > attempt_floor OR decided IS NOT NULL)

-- turns_3: The leased of a key.
CREATE INDEX keys_leased ON messages (route, (coalesce(key, id))) WHERE state = 1

-- turns_4: Reckon the turn of a key anew; two transactions that do so wait for each other.
CREATE FUNCTION take_turn(of_route TEXT, of_name TEXT) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT AS $body$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM keyed_routes WHERE route = of_route) THEN RETURN; END IF;
    PERFORM pg_advisory_xact_lock(CAST(CAST('turns' AS REGCLASS) AS INT), hashtext(of_route));
    INSERT INTO turns (route, key, due)
    SELECT k.route, of_name, {next_turn:of_name}
    FROM keyed_routes AS k WHERE k.route = of_route
    ON CONFLICT (route, key) DO UPDATE SET due = excluded.due;
    DELETE FROM turns WHERE route = of_route AND key = of_name AND due IS NULL;
END $body$

-- turns_5: A message comes, changes or goes.
CREATE FUNCTION turn_of_message() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $body$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        PERFORM take_turn(NEW.route, coalesce(NEW.key, NEW.id));
    END IF;
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND
        (OLD.route <> NEW.route OR coalesce(OLD.key, OLD.id) <> coalesce(NEW.key, NEW.id))) THEN
        PERFORM take_turn(OLD.route, coalesce(OLD.key, OLD.id));
    END IF;
    RETURN NULL;
END $body$

-- turns_6: The trigger.
CREATE TRIGGER turn_after AFTER INSERT OR UPDATE OR DELETE ON messages
FOR EACH ROW EXECUTE FUNCTION turn_of_message()

-- notify: Wake every process, if nothing of the route is due earlier than this; what is due first.
SELECT n.due, CASE WHEN n.due < :due THEN NULL ELSE pg_notify(:channel, :news) END
FROM ({next_due}) AS n(due)

-- server_time: The server's clock, in milliseconds.
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS DOUBLE PRECISION)

-- lease_of_token: The messages that a claim leased.
SELECT seqs FROM leases WHERE token = ? FOR UPDATE
