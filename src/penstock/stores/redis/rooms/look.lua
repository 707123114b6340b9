-- LOOK and HEARTBEAT: tickets with their place, and signs of life.
-- A copy of `penstock.model.room_steps.see` and `heartbeat`.
--
-- KEYS  a room's 15
-- ARGV  1 now · 2 settings of rooms that were never PUT
--       3 'look' · 'alive' (waiters asked themselves) · 'heartbeat' (sessions go on, too)
--       4 … users
-- →     false: no such room; or { outlook, tickets or false each }
-- @include stores/redis/rooms/common.lua

local now = clamped(tonumber(ARGV[1]))
local r = load_room(0, now, ARGV[2])
if not r then return false end

local function go_on(user)
  local packed = redis.call('HGET', KEYS[TICKETS], user)
  local ticket = packed and unpack_ticket(packed)
  if not ticket or ticket[STATE] ~= 'E' or ticket[OURS] ~= 1 then return end
  -- One that arrives late shortens nothing: a later one may have been here before it.
  ticket[UNTIL] = r.session_ttl and math.max(now + r.session_ttl, ticket[UNTIL]) or -1
  redis.call('HSET', KEYS[TICKETS], user, cmsgpack.pack(ticket))
  redis.call('ZADD', KEYS[HELD], r.session_ttl and ticket[UNTIL] or '+inf', user)
end

local tickets = {}
for i = 4, #ARGV do
  local user = ARGV[i]
  if ARGV[3] ~= 'look' and find_waiting(r, user) then saw(r, user, now) end
  if ARGV[3] == 'heartbeat' then go_on(user) end
end
for i = 4, #ARGV do tickets[#tickets + 1] = ticket_reply(r, ARGV[i]) end
return { outlook(r), tickets }
