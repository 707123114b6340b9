-- Scheduling from SQL, in the caller's own transaction. The functions run as their owner: a role
-- that may use the schema and call them needs no right to any table.

-- A message that was checked; whether it is new, and the state and due of the one then held.
CREATE FUNCTION put_message(
    p_id TEXT, p_route TEXT, p_key TEXT, p_payload BYTEA, p_content_type TEXT, p_headers TEXT,
    p_labels TEXT, p_topic TEXT, p_due BIGINT, p_expires BIGINT, p_priority BIGINT
) RETURNS TABLE (is_new BOOLEAN, held_state BIGINT, held_due BIGINT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
DECLARE
    v_new INT;
    v_settled INT;
BEGIN
    INSERT INTO messages (id, route, key, payload, content_type, headers, labels, topic, due,
                          expires, priority, created)
    VALUES (p_id, p_route, nullif(p_key, p_id), p_payload, nullif(p_content_type, 'application/json'),
            p_headers, p_labels, p_topic, p_due, p_expires, p_priority,
            floor(extract(epoch FROM clock_timestamp()) * 1000))
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
                         AND m.priority = ANY (CAST('{0,1,2,3,4,5,6,7,8,9}' AS BIGINT[]))) THEN
            PERFORM pg_notify(current_schema() || '_wake', '0 ' || p_due || ' ' || p_route);
        END IF;
        RETURN QUERY SELECT true, CAST(0 AS BIGINT), p_due;
    ELSE
        RETURN QUERY SELECT false, k.state, k.due FROM known_messages AS k WHERE k.id = p_id;
    END IF;
END $body$;

CREATE FUNCTION refuse(field TEXT, reason TEXT) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = field || ': ' || reason;
END $body$;

CREATE FUNCTION is_printable(value TEXT, most INT) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE AS $body$
    SELECT length(value) BETWEEN 1 AND most AND value !~ '[[:cntrl:]]'
$body$;

CREATE FUNCTION check_headers(headers JSONB) RETURNS void
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
        ELSIF (value #>> '{}') ~ '[[:cntrl:]]' THEN
            PERFORM refuse('headers.' || name, 'must not contain control characters');
        END IF;
    END LOOP;
END $body$;

CREATE FUNCTION check_labels(labels JSONB) RETURNS void
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
            IF NOT EXISTS (SELECT 1 FROM pg_timezone_names AS z WHERE z.name = value #>> '{}') THEN
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

-- Keep a message until it is due; the id that it has. Nothing is sent before the commit, and
-- nothing exists after a rollback. An id that is known is a duplicate: the first stays.
CREATE FUNCTION schedule(
    route TEXT DEFAULT 'default', payload JSONB DEFAULT 'null', due TIMESTAMPTZ DEFAULT now(),
    id TEXT DEFAULT NULL, key TEXT DEFAULT NULL, headers JSONB DEFAULT NULL,
    labels JSONB DEFAULT NULL, priority INT DEFAULT 5, expires TIMESTAMPTZ DEFAULT NULL,
    topic TEXT DEFAULT NULL
) RETURNS TEXT
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
#variable_conflict use_variable
DECLARE
    v_now BIGINT := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_due BIGINT := CASE WHEN isfinite(due)
        THEN greatest(v_now, ceil(extract(epoch FROM due) * 1000)) END;
    v_expires BIGINT := CASE WHEN isfinite(expires)
        THEN floor(extract(epoch FROM expires) * 1000) END;
    v_payload BYTEA := convert_to(coalesce(CAST(payload AS TEXT), 'null'), 'UTF8');
    v_chance TEXT := replace(CAST(gen_random_uuid() AS TEXT), '-', '');
    v_time TEXT := lpad(to_hex(v_now), 12, '0');
    v_id TEXT := coalesce(id, left(v_time, 8) || '-' || right(v_time, 4) || '-7'
        || substr(v_chance, 1, 3) || '-' || substr('89ab', 1 + get_byte(decode(v_chance, 'hex'), 5) % 4, 1)
        || substr(v_chance, 4, 3) || '-' || right(v_chance, 12));
BEGIN
    IF route IS NULL OR route !~ '^[A-Za-z0-9_.-]{1,100}$' THEN
        PERFORM refuse('route', 'must be 1-100 letters, digits, _ . or -');
    ELSIF v_id !~ '^[ -~]{1,200}$' THEN
        PERFORM refuse('id', 'must be 1-200 printable ASCII characters');
    ELSIF NOT is_printable(key, 512) THEN
        PERFORM refuse('key', 'must be 1-512 printable characters');
    ELSIF NOT is_printable(topic, 512) THEN
        PERFORM refuse('topic', 'must be 1-512 printable characters');
    ELSIF due IS NULL OR NOT isfinite(due) OR extract(year FROM due) > 9999 THEN
        PERFORM refuse('due', 'is outside 1970-01-01 … 9999-12-31');
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        PERFORM refuse('priority', 'must be 0-9 (9 leaves first)');
    ELSIF octet_length(v_payload) > 262144 THEN
        PERFORM refuse('payload', 'is larger than 262144 bytes');
    ELSIF v_expires <= v_due THEN
        PERFORM refuse('expires', 'must be after the moment the message is due');
    END IF;
    IF headers IS NOT NULL THEN
        PERFORM check_headers(headers);
    END IF;
    IF labels IS NOT NULL THEN
        PERFORM check_labels(labels);
    END IF;
    PERFORM put_message(v_id, route, coalesce(key, v_id), v_payload, 'application/json',
                        CAST(nullif(headers, '{}') AS TEXT), CAST(labels AS TEXT), topic, v_due,
                        v_expires, priority);
    RETURN v_id;
END $body$;

-- The copy of `lifecycle.amend` of a cancel: whether the message is cancelled, now or before.
-- False: it is not known, or on its way; then it is not sent again if this send fails.
CREATE FUNCTION cancel(id TEXT) RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
#variable_conflict use_column
DECLARE
    v_now BIGINT := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_message messages%ROWTYPE;
    v_last BIGINT;
BEGIN
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

-- Nobody calls them unless somebody who may lets them: GRANT EXECUTE.
REVOKE ALL ON FUNCTION put_message FROM PUBLIC;
REVOKE ALL ON FUNCTION schedule FROM PUBLIC;
REVOKE ALL ON FUNCTION cancel FROM PUBLIC;
