-- The two steps that run for every batch released, each a function: one statement, one round trip,
-- and plans that the server keeps for a connection, a pooler's too. They run with the rights of
-- their caller. The settings hold while a function runs: its plans are made once, whatever the
-- tables held then, and they are the ones that read indexes.

-- The copy of `lifecycle.lease`: lease what is due, in order, the highest priority first. A row for
-- each message; at last one whose `seq` is NULL, with the next due and, as its state, 1 where the
-- claim stopped at `p_bytes`.
CREATE FUNCTION claim_due(
    p_route TEXT, p_limit BIGINT, p_bytes BIGINT, p_token BIGINT, p_now BIGINT, p_until BIGINT,
    p_floor_dues BIGINT[], p_floor_ids TEXT[]
) RETURNS TABLE (
    seq BIGINT, id TEXT, route TEXT, key TEXT, payload BYTEA, content_type TEXT, headers TEXT,
    labels TEXT, topic TEXT, due BIGINT, expires BIGINT, priority BIGINT, state BIGINT,
    version BIGINT, attempt BIGINT, attempt_floor BIGINT, created BIGINT, claimed BIGINT,
    settled BIGINT, last_error TEXT, cancel_pending BIGINT, decided TEXT
)
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    -- The caller's moment, or the server's where that is earlier: never early.
    v_now BIGINT := least(p_now, CAST(floor(extract(epoch FROM now()) * 1000) AS BIGINT));
    v_seqs BIGINT[] := '{}';
    v_number BIGINT := 0;
    v_bytes BIGINT := 0;
    v_found BIGINT;
    v_fitting BIGINT[];
    v_fitting_bytes BIGINT;
    v_stopped BOOLEAN := false;
    v_next BIGINT;
    v_due BIGINT;
BEGIN
    IF p_limit <= 0 OR EXISTS (SELECT 1 FROM paused AS p WHERE p.route = p_route) THEN
        RETURN;
    END IF;
    FOR v_priority IN REVERSE 9..0 LOOP
        WITH picked AS (
            SELECT m.seq, length(m.payload) + coalesce(length(m.headers), 0) AS size
            FROM messages AS m
            WHERE m.state = 0 AND m.route = p_route AND m.priority = v_priority AND m.due <= v_now
              AND (m.due, m.id) > (p_floor_dues[v_priority + 1], p_floor_ids[v_priority + 1])
            ORDER BY m.due, m.id LIMIT p_limit - v_number FOR UPDATE SKIP LOCKED
        ), summed AS (
            SELECT p.seq, p.size, v_bytes + sum(p.size) OVER (ROWS UNBOUNDED PRECEDING) AS total,
                   v_number + row_number() OVER (ROWS UNBOUNDED PRECEDING) AS place
            FROM picked AS p
        )
        SELECT count(*), array_agg(s.seq) FILTER (WHERE s.total <= p_bytes OR s.place = 1),
               sum(s.size) FILTER (WHERE s.total <= p_bytes OR s.place = 1)
        INTO v_found, v_fitting, v_fitting_bytes
        FROM summed AS s;
        CONTINUE WHEN v_found = 0;
        v_seqs := v_seqs || v_fitting;
        v_number := v_number + coalesce(cardinality(v_fitting), 0);
        v_bytes := v_bytes + coalesce(v_fitting_bytes, 0);
        v_stopped := coalesce(cardinality(v_fitting), 0) < v_found;
        EXIT WHEN v_stopped OR v_number >= p_limit;
    END LOOP;
    IF v_number > 0 THEN
        INSERT INTO leases (token, route, until, open, seqs)
        VALUES (p_token, p_route, p_until, v_number, CAST(array_to_json(v_seqs) AS TEXT));
        RETURN QUERY
        UPDATE messages AS m SET state = 1, lease = p_token, attempt = m.attempt + 1, claimed = p_now
        WHERE m.seq = ANY (v_seqs)
        RETURNING m.seq, m.id, m.route, m.key, m.payload, m.content_type, m.headers, m.labels,
                  m.topic, m.due, m.expires, m.priority, m.state, m.version, m.attempt,
                  m.attempt_floor, m.created, m.claimed, m.settled, m.last_error, m.cancel_pending,
                  m.decided;
    END IF;
    IF v_number < p_limit AND NOT v_stopped THEN
        FOR v_priority IN 0..9 LOOP
            SELECT m.due INTO v_due FROM messages AS m
            WHERE m.state = 0 AND m.route = p_route AND m.priority = v_priority
              AND (m.due, m.id) > (p_floor_dues[v_priority + 1], p_floor_ids[v_priority + 1])
            ORDER BY m.due, m.id LIMIT 1;
            v_next := least(v_next, v_due);
        END LOOP;
    END IF;
    due := v_next;
    state := CAST(v_stopped AS INT);
    seq := NULL;
    RETURN NEXT;
END $body$;

-- Lock the turns of those of the routes that are keyed, in the order of their names: before any of
-- their messages is locked, as every transaction does.
CREATE FUNCTION lock_turns(p_routes TEXT[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock(CAST(CAST('turns' AS REGCLASS) AS INT), hashtext(k.route))
    FROM (SELECT r.route FROM keyed_routes AS r WHERE r.route = ANY (p_routes)
          ORDER BY r.route) AS k;
END $body$;

-- The copy of `lifecycle.settle` of the delivered: out of the hot table, into history. The `seq` of
-- each whose token was still valid. Lines of a timeline that were added while this waited for their
-- writer follow the message afterwards.
CREATE FUNCTION deliver_leased(
    p_seqs BIGINT[], p_tokens BIGINT[], p_decided TEXT[], p_now BIGINT
) RETURNS SETOF BIGINT
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
DECLARE
    v_seqs BIGINT[];
    v_tokens BIGINT[];
    v_noted BOOLEAN := EXISTS (SELECT 1 FROM events AS e WHERE e.seq = ANY (p_seqs));
BEGIN
    -- No caller waits for the disk: a crash of the server may forget the last settlements, and what
    -- they settled is sent again with a higher attempt. Claims do wait: a forgotten one would not
    -- have counted its attempt.
    PERFORM set_config('synchronous_commit', 'off', true);
    IF EXISTS (SELECT 1 FROM keyed_routes) THEN
        PERFORM lock_turns(ARRAY(SELECT DISTINCT m.route FROM messages AS m
                                 WHERE m.seq = ANY (p_seqs)));
    END IF;
    WITH gone AS (
        DELETE FROM messages AS m USING unnest(p_seqs, p_tokens, p_decided) AS l(seq, token, said)
        WHERE m.seq = l.seq AND m.lease = l.token
        RETURNING m.seq, m.id, m.route, m.key, m.content_type, m.labels, m.topic, m.due, m.expires,
                  m.priority, m.version, m.attempt, m.attempt_floor, m.created, m.claimed, m.lease,
                  m.last_error, coalesce(l.said, m.decided) AS decided
    ), noted AS (
        DELETE FROM events AS e USING gone AS g WHERE v_noted AND e.seq = g.seq
    ), kept AS (
        INSERT INTO history (seq, id, route, key, content_type, labels, topic, due, expires,
                             priority, state, version, attempt, attempt_floor, created, claimed,
                             settled, last_error, cancel_pending, decided, events)
        SELECT g.seq, g.id, g.route, g.key, g.content_type, g.labels, g.topic, g.due, g.expires,
               g.priority, 2, g.version, g.attempt, g.attempt_floor, g.created, g.claimed,
               p_now, g.last_error, 0, g.decided,
               CASE WHEN v_noted THEN
                   (SELECT jsonb_agg(jsonb_build_object('at', e.at, 'event', e.event,
                                                        'detail', e.detail, 'attempt', e.attempt)
                                     ORDER BY e.n)
                    FROM events AS e WHERE e.seq = g.seq)
               END
        FROM gone AS g
    )
    SELECT array_agg(g.seq), array_agg(g.lease) INTO v_seqs, v_tokens FROM gone AS g;
    IF EXISTS (SELECT 1 FROM events AS e WHERE e.seq = ANY (v_seqs)) THEN
        WITH noted AS (
            DELETE FROM events AS e WHERE e.seq = ANY (v_seqs) RETURNING e.*
        ), lines AS (
            SELECT n.seq, jsonb_agg(jsonb_build_object('at', n.at, 'event', n.event,
                                                       'detail', n.detail, 'attempt', n.attempt)
                                    ORDER BY n.n) AS events
            FROM noted AS n GROUP BY n.seq
        )
        UPDATE history AS h SET events = coalesce(h.events, '[]') || l.events FROM lines AS l
        WHERE h.seq = l.seq AND h.n > (SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'horizon');
    END IF;
    UPDATE leases AS l SET open = l.open - c.number
    FROM (SELECT token, count(*) AS number FROM unnest(v_tokens) AS t(token) GROUP BY token) AS c
    WHERE l.token = c.token;
    DELETE FROM leases AS l WHERE l.token = ANY (v_tokens) AND l.open <= 0;
    RETURN QUERY SELECT unnest(v_seqs);
END $body$;
