-- Waiting rooms: records, tickets, and how many wait where.

-- room: The record of a room.
SELECT id, name, settings, state, epoch, tally FROM rooms WHERE name = ?

-- room_locked: The same, for a step that will write it.
SELECT id, name, settings, state, epoch, tally FROM rooms WHERE name = ? {lock}

-- make_room: A new room.
INSERT INTO rooms (name, settings, state, epoch, tally, due) VALUES (?, ?, ?, ?, ?, ?)

-- save_room: What an operator may have changed, and the tally.
UPDATE rooms SET settings = ?, state = ?, epoch = ?, tally = ?, due = ? WHERE id = ?

-- save_tally: What a step of visitors has changed; the room is looked at again when `due`.
UPDATE rooms SET tally = ?, due = ? WHERE id = ?

-- save_tally_only: The same without another moment to look at the room.
UPDATE rooms SET tally = ? WHERE id = ?

-- room_names: A page of names, in order.
SELECT name FROM rooms WHERE name > ? ORDER BY name LIMIT ?

-- due_rooms: Rooms whose moment to be looked at has come.
SELECT id, name FROM rooms WHERE due <= ? ORDER BY due LIMIT ? {skip_locked}

-- room_due_at: When to look at the room again.
UPDATE rooms SET due = ? WHERE id = ?

-- first_until: The first moment of each kind of ticket in a room: last seen, ends, is forgotten.
(SELECT min(until) FROM room_tickets WHERE room = r.id AND kind = 0),
(SELECT min(until) FROM room_tickets WHERE room = r.id AND kind = 1),
(SELECT min(until) FROM room_tickets WHERE room = r.id AND kind = 2)

-- survey: What a promotion needs of each room, with how many wait in the default lane.
SELECT r.id, r.name, r.settings, r.state, r.epoch, r.tally, {first_until},
  (SELECT waiting FROM room_lanes WHERE room = r.id AND lane = 'default')
FROM {each:names} AS asked {join} rooms AS r ON r.name = asked.value {lock_rooms}

-- moments: The moments of rooms.
SELECT r.id, {first_until} FROM {each_int:rooms} AS asked {join} rooms AS r ON r.id = asked.value

-- lanes: How many wait in each lane of rooms.
SELECT l.room, l.lane, l.waiting
FROM {each_int:rooms} AS asked {join} room_lanes AS l ON l.room = asked.value

-- ticket_columns: A ticket, in the order `to_ticket` reads it.
t.visitor, t.state, t.lane, t.number, t.joined, t.until, t.promoted, t.entered, t.pass, t.instance

-- of_visitors: The tickets of visitors who have one in the room.
FROM {each:users} AS asked {join} room_tickets AS t ON t.room = :room AND t.visitor = asked.value

-- tickets: Tickets of visitors.
SELECT {ticket_columns} {of_visitors}

-- ticket_states: The states of visitors' tickets.
SELECT t.visitor, t.state {of_visitors}

-- placed_tickets: Tickets of visitors; of those who wait, how many of the lane are ahead.
-- A place is found by adding up the blocks before it, not by counting everybody.
SELECT {ticket_columns}, CASE t.kind WHEN 0 THEN
  (SELECT CAST(coalesce(sum(b.waiting), 0) AS BIGINT) FROM room_blocks AS b
   WHERE b.room = t.room AND b.lane = t.lane AND b.block < {block_of_ticket})
  + (SELECT count(*) FROM room_tickets AS o
     WHERE o.room = t.room AND o.lane = t.lane AND o.kind = 0
       AND o.number >= {block_start} AND (o.number, o.visitor) < (t.number, t.visitor))
  END {of_visitors}

-- block_of_ticket: The copy of `block_of` in room_rows.py.
CASE WHEN t.number < 2199023255552 THEN t.number >> 30 ELSE t.number >> 8 END

-- block_start: The first number of the ticket's block.
CASE WHEN t.number < 2199023255552 THEN t.number >> 30 << 30 ELSE t.number >> 8 << 8 END

-- put_ticket: Write a ticket.
INSERT INTO room_tickets
  (room, visitor, kind, until, state, lane, number, joined, promoted, entered, pass, instance)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (room, visitor) DO UPDATE SET
  kind = excluded.kind, until = excluded.until, state = excluded.state, lane = excluded.lane,
  number = excluded.number, joined = excluded.joined, promoted = excluded.promoted,
  entered = excluded.entered, pass = excluded.pass, instance = excluded.instance

-- see_ticket: The copy of `room_steps.see`.
UPDATE room_tickets SET until = CASE WHEN until < :now THEN :now ELSE until END
WHERE room = :room AND visitor = :user AND kind = 0

-- over: Tickets of a kind whose moment has come, the earliest first.
SELECT {ticket_columns} FROM room_tickets AS t
WHERE t.room = ? AND t.kind = ? AND t.until <= ? ORDER BY t.until, t.visitor LIMIT ?

-- forget_tickets: Drop ended tickets whose time has come.
DELETE FROM room_tickets WHERE id IN (
  SELECT id FROM room_tickets WHERE room = ? AND kind = 2 AND until <= ? LIMIT ?)

-- first_in_line: The next of a lane.
SELECT number, visitor, joined, instance, id FROM room_tickets
WHERE room = ? AND lane = ? AND kind = 0 ORDER BY number, visitor LIMIT ?

-- admit: The copy of `room_steps.Admission.ticket`, of tickets whose ids lie in a row.
-- Those who came one after the other are let in by one statement, for half of what one each costs.
{update_or_fail} room_tickets
SET kind = 1, state = 'ADMITTED', promoted = ?, until = ?, pass = ? || number
WHERE id BETWEEN ? AND ?

-- count_lane: People join a lane, or leave it.
INSERT INTO room_lanes (room, lane, waiting) VALUES (?, ?, ?)
ON CONFLICT (room, lane) DO UPDATE SET waiting = room_lanes.waiting + excluded.waiting

-- count_block: People join a block of places, or leave it.
INSERT INTO room_blocks (room, lane, block, waiting) VALUES (?, ?, ?, ?)
ON CONFLICT (room, lane, block) DO UPDATE SET waiting = room_blocks.waiting + excluded.waiting

-- drop_empty_block: Forget a block in which nobody waits.
DELETE FROM room_blocks WHERE room = ? AND lane = ? AND block = ? AND waiting <= 0

-- leave_lane: The first of a lane are let in.
UPDATE room_lanes SET waiting = waiting - ? WHERE room = ? AND lane = ?

-- leave_block: The first of a block are let in.
UPDATE room_blocks SET waiting = waiting - ? WHERE room = ? AND lane = ? AND block = ?

-- drop_blocks_before: Forget the blocks of which everybody was let in.
DELETE FROM room_blocks WHERE room = ? AND lane = ? AND block < ?

-- move_tickets: Everybody of a lane waits on in another, in the order of their numbers.
UPDATE room_tickets SET lane = ? WHERE room = ? AND lane = ? AND kind = 0

-- move_blocks: The same of the counts by block.
INSERT INTO room_blocks (room, lane, block, waiting)
SELECT room, ?, block, waiting FROM room_blocks WHERE room = ? AND lane = ?
ON CONFLICT (room, lane, block) DO UPDATE SET waiting = room_blocks.waiting + excluded.waiting

-- move_count: The same of the count of the lane.
INSERT INTO room_lanes (room, lane, waiting)
SELECT room, ?, waiting FROM room_lanes WHERE room = ? AND lane = ?
ON CONFLICT (room, lane) DO UPDATE SET waiting = room_lanes.waiting + excluded.waiting

-- drop_blocks: Forget the blocks of a lane.
DELETE FROM room_blocks WHERE room = ? AND lane = ?

-- drop_lane: Forget the count of a lane.
DELETE FROM room_lanes WHERE room = ? AND lane = ?

-- clear_tickets: A reset: nobody is known.
DELETE FROM room_tickets WHERE room = ?

-- clear_blocks: A reset: nobody waits.
DELETE FROM room_blocks WHERE room = ?

-- clear_lanes: A reset: nobody waits.
DELETE FROM room_lanes WHERE room = ?

-- propose_secret: The first secret that is proposed stays.
INSERT INTO room_secrets (name, secret) VALUES (?, ?) ON CONFLICT (name) DO NOTHING

-- secret: The secret that stays.
SELECT secret FROM room_secrets WHERE name = ?
