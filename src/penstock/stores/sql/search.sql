-- Searches, figures, forecasts, heartbeats.
-- A page is merged from streams that are each in order of (due, id).

-- routes_scheduled: The next route with a scheduled message.
SELECT min(route) FROM messages {index:scheduled} WHERE state = 0 AND route > ?

-- routes_settled: The next route with a settled message of the state.
SELECT min(route) FROM messages {index:settled} WHERE state = ? AND state >= 2 AND route > ?

-- leased_seqs: The messages under leases.
SELECT seqs FROM leases

-- page: What a stream reads at most.
ORDER BY due, id LIMIT :limit

-- stream_scheduled: The scheduled of a route and priority.
SELECT due, id, seq FROM messages {index:scheduled}
WHERE state = 0 AND route = :route AND priority = :priority {where} {page}

-- stream_settled: The settled of a state and route.
SELECT due, id, seq FROM messages {index:settled}
WHERE state = :state AND state >= 2 AND route = :route {where} {page}

-- stream_leased: The leased.
SELECT due, id, seq FROM messages WHERE state = 1 AND {of_seqs} {where} {page}

-- stream_key: The messages of a key that is not their id.
SELECT due, id, seq FROM messages {index:keyed} WHERE key = :key {where} {page}

-- stream_id: The message whose key is its id.
SELECT due, id, seq FROM messages WHERE id = :key AND key IS NULL {where} {page}

-- if_due_from: Due then or later.
AND due >= :due_from

-- if_due_to: Due before.
AND due < :due_to

-- if_error: The last error contains a text.
AND {contains:last_error}

-- if_after: Behind the page before.
AND (due, id) > (:after_due, :after_id)

-- if_state: Of a state.
AND state = :state

-- if_route: Of a route.
AND route = :route

-- by_seqs: The messages of a page.
SELECT {columns} FROM messages WHERE {of_seqs}

-- sizes: The bytes of messages, which are not read for it.
SELECT seq, coalesce(length(payload), 0) + coalesce(length(headers), 0) FROM messages WHERE {of_seqs}

-- count_scheduled: What each route holds.
SELECT route, count(*), count(*) FILTER (WHERE due <= ?), min(due) FROM messages {index:scheduled}
WHERE state = 0 GROUP BY route

-- count_leased: What each route has under leases.
SELECT route, CAST(sum(open) AS BIGINT) FROM leases GROUP BY route

-- count_settled: What each route has settled, by state.
SELECT state, route, count(*) FROM messages {index:settled} WHERE state >= 2 GROUP BY state, route

-- forecast: What is coming due, by minute, then by hour, then the rest.
SELECT route, due < :minutes_end,
       CASE WHEN due < :minutes_end
            THEN (CASE WHEN due < :now THEN :now ELSE due END) / 60000 * 60000
            WHEN due < :hours_end THEN due / 3600000 * 3600000
            ELSE :hours_end END,
       count(*)
FROM messages {index:scheduled} WHERE state = 0 GROUP BY 1, 2, 3

-- dead_letters: The latest dead of a route.
SELECT route, coalesce(last_error, ''), coalesce(settled, due), id
FROM messages {index:settled} WHERE state = 3 AND state >= 2 AND route = :route
ORDER BY due DESC LIMIT :limit

-- beat: What a process says of itself.
INSERT INTO heartbeats (id, seen, body) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, body = excluded.body

-- heartbeats: What every process last said.
SELECT body FROM heartbeats

-- forget_heartbeats: Processes that have said nothing for long.
DELETE FROM heartbeats WHERE seen < ?
