-- What a role may do that can only call functions. A temporary table of the caller's own must not
-- stand in for one of ours, so temporary tables are looked for last; and `put_message`, which that
-- role may call too, refuses what `schedule` refuses.

-- What Python's str.isprintable() refuses: control and format characters, separators but the space,
-- private and surrogate code points. (Code points that Unicode has not assigned pass.)
CREATE OR REPLACE FUNCTION is_printable(value TEXT, most INT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE AS $body$
    SELECT length(value) BETWEEN 1 AND most AND value !~ '[\u0001-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f\U000f0000-\U0010ffff]'
$body$;

-- The zones that the server knew when this was made: the view of them reads files for each look.
CREATE TABLE time_zones (name TEXT COLLATE "C" PRIMARY KEY);

CREATE FUNCTION known_zones() RETURNS SETOF TEXT LANGUAGE sql STABLE AS $body$
    SELECT name FROM pg_timezone_names
    WHERE name !~ '^(posix|right)/' AND name NOT IN ('posixrules', 'localtime')
$body$;

INSERT INTO time_zones SELECT DISTINCT known_zones();

CREATE FUNCTION is_zone(value TEXT) RETURNS BOOLEAN
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $body$
BEGIN
    IF EXISTS (SELECT 1 FROM time_zones AS z WHERE z.name = value) THEN
        RETURN true;
    END IF;
    RETURN EXISTS (SELECT 1 FROM known_zones() AS z WHERE z = value); -- a newer one
END $body$;

CREATE OR REPLACE FUNCTION check_headers(headers JSONB) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
DECLARE
    name TEXT;
    value JSONB;
BEGIN
    IF jsonb_typeof(headers) <> 'object' THEN
        PERFORM refuse('headers', 'must be an object of texts');
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(headers)) > 64 THEN
        PERFORM refuse('headers', 'has more than 64 entries');
    END IF;
    FOR name, value IN SELECT * FROM jsonb_each(headers) LOOP
        IF name !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]{1,128}$' THEN
            PERFORM refuse('headers', 'a name must be 1-128 token characters');
        ELSIF lower(name) ~ '^(penstock|webhook)-' THEN
            PERFORM refuse('headers', 'the name ' || name || ' is reserved');
        ELSIF jsonb_typeof(value) <> 'string' OR length(value #>> '{}') > 4096 THEN
            PERFORM refuse('headers.' || name, 'must be a text of at most 4096 characters');
        ELSIF value <> '""' AND NOT is_printable(value #>> '{}', 4096) THEN
            PERFORM refuse('headers.' || name, 'must not contain control characters');
        END IF;
    END LOOP;
END $body$;

CREATE OR REPLACE FUNCTION check_labels(labels JSONB) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
DECLARE
    name TEXT;
    value JSONB;
BEGIN
    IF jsonb_typeof(labels) <> 'object' THEN
        PERFORM refuse('labels', 'must be an object');
    END IF;
    FOR name, value IN SELECT * FROM jsonb_each(labels) LOOP
        IF name IN ('channel', 'campaign', 'class') THEN
            IF jsonb_typeof(value) <> 'string' OR NOT is_printable(value #>> '{}', 200) THEN
                PERFORM refuse('labels.' || name, 'must be 1-200 printable characters');
            END IF;
        ELSIF name = 'tz' THEN
            IF jsonb_typeof(value) <> 'string' OR NOT is_zone(value #>> '{}') THEN
                PERFORM refuse('labels.tz', 'is not an IANA time zone');
            END IF;
        ELSIF name IN ('tags', 'keys') THEN
            IF jsonb_typeof(value) <> 'array' THEN
                PERFORM refuse('labels.' || name, 'must be a list of texts');
            ELSIF jsonb_array_length(value) > (CASE name WHEN 'tags' THEN 32 ELSE 1000 END) THEN
                PERFORM refuse('labels.' || name, 'has too many entries');
            ELSIF EXISTS (
                SELECT 1 FROM jsonb_array_elements(value) AS e(one)
                WHERE jsonb_typeof(e.one) <> 'string'
                   OR NOT is_printable(e.one #>> '{}', CASE name WHEN 'tags' THEN 200 ELSE 512 END)
            ) THEN
                PERFORM refuse('labels.' || name, 'must be texts of printable characters');
            END IF;
        ELSE
            PERFORM refuse('labels.' || name, 'is not known');
        END IF;
    END LOOP;
END $body$;

-- Puts a message whose values were checked; whether it is new, and the state and due of the one
-- then held.
CREATE FUNCTION put_checked(
    p_id TEXT, p_route TEXT, p_key TEXT, p_payload BYTEA, p_content_type TEXT, p_headers TEXT,
    p_labels TEXT, p_topic TEXT, p_due BIGINT, p_expires BIGINT, p_priority BIGINT
) RETURNS TABLE (is_new BOOLEAN, held_state BIGINT, held_due BIGINT)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
DECLARE
    v_now BIGINT := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_new INT;
    v_settled INT;
BEGIN
    PERFORM lock_turns(ARRAY[p_route]);
    INSERT INTO messages (id, route, key, payload, content_type, headers, labels, topic, due,
                          expires, priority, created)
    VALUES (p_id, p_route, nullif(p_key, p_id), p_payload, nullif(p_content_type, 'application/json'),
            p_headers, p_labels, p_topic, p_due, p_expires, p_priority, v_now)
    ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS v_new = ROW_COUNT;
    DELETE FROM messages AS m USING history AS h
    WHERE m.id = p_id AND h.id = p_id
      AND h.n > (SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'horizon');
    GET DIAGNOSTICS v_settled = ROW_COUNT;
    IF v_new = 1 AND v_settled = 0 THEN
        -- Delivered at commit, to workers that wait for something later.
        IF NOT EXISTS (SELECT 1 FROM messages AS m
                       WHERE m.state = 0 AND m.route = p_route AND m.due < p_due
                         AND m.due >= least(p_due, v_now) - 2000
                         AND m.priority = ANY (CAST('{0,1,2,3,4,5,6,7,8,9}' AS BIGINT[]))) THEN
            PERFORM pg_notify(current_schema() || '_wake', '0 ' || p_due || ' ' || p_route);
        END IF;
        RETURN QUERY SELECT true, CAST(0 AS BIGINT), p_due;
    ELSE
        RETURN QUERY SELECT false, k.state, k.due FROM known_messages AS k WHERE k.id = p_id;
    END IF;
END $body$;

REVOKE ALL ON FUNCTION put_checked FROM PUBLIC;

-- The JSON of a text; NULL if it is none.
CREATE FUNCTION as_json(value TEXT) RETURNS JSONB LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    RETURN CAST(value AS JSONB);
EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
    RETURN NULL;
END $body$;

-- What every message must be, whichever function brings it; the rules of Python's `draft.py`.
CREATE FUNCTION check_message(
    p_id TEXT, p_route TEXT, p_key TEXT, p_payload BYTEA, p_content_type TEXT, p_headers JSONB,
    p_labels JSONB, p_topic TEXT, p_due BIGINT, p_expires BIGINT, p_priority BIGINT
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
DECLARE
    c_last CONSTANT BIGINT := 253402300799999;
BEGIN
    IF p_route IS NULL OR p_route !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$' THEN
        PERFORM refuse('route', 'must be 1-100 letters, digits, _ . or -, and begin with a letter or digit');
    ELSIF p_id IS NULL OR p_id !~ '^[ -~]{1,200}$' THEN
        PERFORM refuse('id', 'must be 1-200 printable ASCII characters');
    ELSIF NOT is_printable(p_key, 512) THEN
        PERFORM refuse('key', 'must be 1-512 printable characters');
    ELSIF NOT is_printable(p_topic, 512) THEN
        PERFORM refuse('topic', 'must be 1-512 printable characters');
    ELSIF p_content_type !~ '^[ -~]{1,200}$' THEN
        PERFORM refuse('content_type', 'must be 1-200 printable ASCII characters');
    ELSIF p_payload IS NULL THEN
        PERFORM refuse('payload', 'is missing');
    ELSIF octet_length(p_payload) > 262144 THEN
        PERFORM refuse('payload', 'is larger than 262144 bytes');
    ELSIF p_due IS NULL OR p_due NOT BETWEEN 0 AND c_last THEN
        PERFORM refuse('due', 'is outside 1970-01-01 … 9999-12-31');
    ELSIF p_priority IS NULL OR p_priority NOT BETWEEN 0 AND 9 THEN
        PERFORM refuse('priority', 'must be 0-9 (9 leaves first)');
    ELSIF p_expires <= p_due THEN
        PERFORM refuse('expires', 'must be after the moment the message is due');
    ELSIF p_expires > c_last THEN
        PERFORM refuse('expires', 'is outside 1970-01-01 … 9999-12-31');
    END IF;
    IF p_headers IS NOT NULL THEN
        PERFORM check_headers(p_headers);
    END IF;
    IF p_labels IS NOT NULL THEN
        PERFORM check_labels(p_labels);
    END IF;
END $body$;

-- A message from a program, in its own transaction: checked as by `schedule`. What is kept is the
-- JSON that was checked, not its text: of a name that comes twice in it a reader may take another
-- value, or refuse it.
CREATE OR REPLACE FUNCTION put_message(
    p_id TEXT, p_route TEXT, p_key TEXT, p_payload BYTEA, p_content_type TEXT, p_headers TEXT,
    p_labels TEXT, p_topic TEXT, p_due BIGINT, p_expires BIGINT, p_priority BIGINT
) RETURNS TABLE (is_new BOOLEAN, held_state BIGINT, held_due BIGINT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
DECLARE
    v_headers JSONB := as_json(p_headers);
    v_labels JSONB := as_json(p_labels);
BEGIN
    IF p_headers IS NOT NULL AND v_headers IS NULL THEN
        PERFORM refuse('headers', 'must be an object of texts');
    ELSIF p_labels IS NOT NULL AND v_labels IS NULL THEN
        PERFORM refuse('labels', 'must be an object');
    END IF;
    PERFORM check_message(p_id, p_route, p_key, p_payload, p_content_type, v_headers, v_labels,
                          p_topic, p_due, p_expires, p_priority);
    RETURN QUERY SELECT * FROM put_checked(p_id, p_route, p_key, p_payload, p_content_type,
                                           CAST(nullif(v_headers, '{}') AS TEXT),
                                           CAST(v_labels AS TEXT), p_topic, p_due, p_expires,
                                           p_priority);
END $body$;

-- A moment in epoch milliseconds. One that no BIGINT is near enough to hold is the end of its side,
-- which `check_message` refuses.
CREATE FUNCTION millis(moment TIMESTAMPTZ) RETURNS NUMERIC LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE moment WHEN '-infinity' THEN -1 WHEN 'infinity' THEN 1e15
                       ELSE CAST(extract(epoch FROM moment) AS NUMERIC) * 1000 END
$body$;

-- Keep a message until it is due; the id that it has. Nothing is sent before the commit, and
-- nothing exists after a rollback. An id that is known is a duplicate: the first stays. A due in
-- the past is now; an `expires` of 'infinity' is none.
CREATE OR REPLACE FUNCTION schedule(
    route TEXT DEFAULT 'default', payload JSONB DEFAULT 'null', due TIMESTAMPTZ DEFAULT now(),
    id TEXT DEFAULT NULL, key TEXT DEFAULT NULL, headers JSONB DEFAULT NULL,
    labels JSONB DEFAULT NULL, priority INT DEFAULT 5, expires TIMESTAMPTZ DEFAULT NULL,
    topic TEXT DEFAULT NULL
) RETURNS TEXT
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
#variable_conflict use_variable
DECLARE
    v_now BIGINT := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_due BIGINT := ceil(millis(due));
    v_expires BIGINT := floor(millis(nullif(expires, 'infinity')));
    v_payload BYTEA := convert_to(coalesce(CAST(payload AS TEXT), 'null'), 'UTF8');
    v_chance TEXT := replace(CAST(gen_random_uuid() AS TEXT), '-', '');
    v_time TEXT := lpad(to_hex(v_now), 12, '0');
    v_id TEXT := coalesce(id, left(v_time, 8) || '-' || right(v_time, 4) || '-7'
        || substr(v_chance, 1, 3) || '-' || substr('89ab', 1 + get_byte(decode(v_chance, 'hex'), 5) % 4, 1)
        || substr(v_chance, 4, 3) || '-' || right(v_chance, 12));
BEGIN
    IF v_due BETWEEN 0 AND v_now THEN
        v_due := v_now;
    END IF;
    PERFORM check_message(v_id, route, key, v_payload, 'application/json', headers, labels, topic,
                          v_due, v_expires, priority);
    PERFORM put_checked(v_id, route, coalesce(key, v_id), v_payload, 'application/json',
                        CAST(nullif(headers, '{}') AS TEXT), CAST(labels AS TEXT), topic, v_due,
                        v_expires, priority);
    RETURN v_id;
END $body$;

-- The copy of `lifecycle.amend` of a cancel: whether the message is cancelled, now or before.
-- False: it is not known, or on its way; then it is not sent again if this send fails.
CREATE OR REPLACE FUNCTION cancel(id TEXT) RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
#variable_conflict use_column
DECLARE
    v_now BIGINT := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_message messages%ROWTYPE;
    v_last BIGINT;
BEGIN
    PERFORM lock_turns(ARRAY(SELECT m.route FROM messages AS m WHERE m.id = cancel.id));
    SELECT * INTO v_message FROM messages AS m WHERE m.id = cancel.id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN EXISTS (SELECT 1 FROM known_messages AS k WHERE k.id = cancel.id AND k.state = 6);
    ELSIF v_message.state = 0 THEN
        INSERT INTO history (seq, id, route, key, payload, content_type, headers, labels, topic,
                             due, expires, priority, state, version, attempt, attempt_floor,
                             created, claimed, settled, last_error, cancel_pending, decided, events)
        SELECT seq, id, route, key, payload, content_type, headers, labels, topic, due, expires,
               priority, 6, version + 1, attempt, attempt_floor, created, NULL, v_now, last_error,
               cancel_pending, decided,
               (SELECT jsonb_agg(jsonb_build_object('at', e.at, 'event', e.event, 'detail', e.detail,
                                                    'attempt', e.attempt) ORDER BY e.n)
                FROM events AS e WHERE e.seq = v_message.seq)
        FROM messages WHERE seq = v_message.seq;
        DELETE FROM events WHERE seq = v_message.seq;
        DELETE FROM messages WHERE seq = v_message.seq;
        RETURN true;
    ELSIF v_message.state = 1 AND v_message.cancel_pending = 0 THEN
        UPDATE messages SET cancel_pending = 1 WHERE seq = v_message.seq;
        SELECT coalesce(max(n), 0) INTO v_last FROM events WHERE seq = v_message.seq;
        INSERT INTO events (seq, n, at, event, detail, attempt) VALUES
            (v_message.seq, v_last + 1, coalesce(v_message.claimed, v_now), 'released', NULL,
             v_message.attempt),
            (v_message.seq, v_last + 2, v_now, 'cancel_asked', NULL, NULL);
    END IF;
    RETURN false;
END $body$;

-- The triggers' functions, where an earlier version made them, look for temporary tables last, too.
DO $body$
BEGIN
    IF to_regprocedure('take_turn(text, text)') IS NOT NULL THEN
        ALTER FUNCTION take_turn(TEXT, TEXT) SET search_path FROM CURRENT;
        ALTER FUNCTION turn_of_message() SET search_path FROM CURRENT;
    END IF;
END $body$;
