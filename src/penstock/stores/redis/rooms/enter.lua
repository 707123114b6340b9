-- ENTER: redeem admissions, each at most once and only while it holds its slot.
-- A copy of `penstock.model.room_steps.enter`.
--
-- KEYS  a room's 15
-- ARGV  1 now · 2 settings of rooms that were never PUT · 3 … (user, pass) each
-- →     false: no such room; or { 'entered' or 'used', ticket } or { 'invalid' } each
-- @include stores/redis/rooms/common.lua

local now = clamped(tonumber(ARGV[1]))
local r = load_room(0, now, ARGV[2])
if not r then return false end

local users = {}
for i = 3, #ARGV, 2 do users[#users + 1] = ARGV[i] end
local by, tickets, held, entered = {}, {}, {}, 0
for i, packed in ipairs(get_many('HMGET', KEYS[TICKETS], users)) do
  if packed and not by[users[i]] then by[users[i]] = unpack_ticket(packed) end
end

local function redeem(user, pass)
  local ticket = by[user]
  if not ticket or pass == '' or ticket[PASS] ~= pass then return { 'invalid' } end
  if ticket[ENTERED] ~= -1 then return { 'used', ticket } end
  local overdue = ticket[UNTIL] ~= -1 and ticket[UNTIL] <= now
  if ticket[STATE] ~= 'A' or overdue then return { 'invalid' } end
  ticket[STATE], ticket[ENTERED], ticket[UNTIL] = 'E', now, -1
  if ticket[OURS] == 1 then
    if r.session_ttl then ticket[UNTIL] = now + r.session_ttl end
    held[#held + 1] = r.session_ttl and ticket[UNTIL] or '+inf'
    held[#held + 1] = user
    entered = entered + 1
  end
  tickets[#tickets + 1] = user
  tickets[#tickets + 1] = cmsgpack.pack(ticket)
  return { 'entered', ticket }
end

local answers = {}
for i = 3, #ARGV, 2 do answers[#answers + 1] = redeem(ARGV[i], ARGV[i + 1]) end
variadic('HSET', KEYS[TICKETS], tickets)
variadic('ZADD', KEYS[HELD], held)
if entered > 0 then
  redis.call('HINCRBY', KEYS[ROOM], 'A', -entered)
  redis.call('HINCRBY', KEYS[ROOM], 'E', entered)
end
return answers
