-- put_message looked at everything due earlier before it woke workers. Entries that were claimed
-- stay in the index while a transaction is open elsewhere, so it looks at the last two seconds
-- alone: workers that have an older backlog are woken once too often, which is harmless.
CREATE OR REPLACE FUNCTION put_message(
    p_id TEXT, p_route TEXT, p_key TEXT, p_payload BYTEA, p_content_type TEXT, p_headers TEXT,
    p_labels TEXT, p_topic TEXT, p_due BIGINT, p_expires BIGINT, p_priority BIGINT
) RETURNS TABLE (is_new BOOLEAN, held_state BIGINT, held_due BIGINT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
DECLARE
    v_now BIGINT := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_new INT;
    v_settled INT;
BEGIN
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
