-- LEAVE: end live tickets; each that held a slot gives exactly one back.
-- A copy of `penstock.model.room_steps.end`.
--
-- KEYS  a room's 15
-- ARGV  1 now · 2 settings of rooms that were never PUT · 3 channel of wake-ups · 4 the room's name
--       5 L (left) or R (revoked) · 6 … users
-- →     false: no such room; or tickets or false each
-- @include stores/redis/rooms/common.lua

local now = clamped(tonumber(ARGV[1]))
local r = load_room(0, now, ARGV[2])
if not r then return false end
local users = {}
for i = 6, #ARGV do users[#users + 1] = ARGV[i] end
local packed = get_many('HMGET', KEYS[TICKETS], users)
local records = get_many('HMGET', KEYS[RECORDS], users)
local seen = get_many('ZMSCORE', KEYS[SEEN], users)
local e = ending(r, now)
for i, user in ipairs(users) do
  local lane, score = find_waiting(r, user)
  local ticket = packed[i] and unpack_ticket(packed[i])
  if e.by[user] then
    -- named twice: it has left already
  elseif lane then
    end_waiting(e, user, lane, score, records[i], seen[i], ARGV[5])
  elseif ticket and (ticket[STATE] == 'A' or ticket[STATE] == 'E') then
    end_promoted(e, user, ticket, ARGV[5])
  end
end
save_ended(e)
local freed = r.slots < r.slots_read
save_slots(r)
if freed then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
local tickets = {}
for i, user in ipairs(users) do tickets[i] = e.by[user] or ticket_reply(r, user) end
return tickets
