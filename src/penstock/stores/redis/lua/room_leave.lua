-- LEAVE: end live tickets; each that held a slot gives exactly one back.
--
-- KEYS  a room's 13
-- ARGV  1 now · 2 settings of rooms nobody has PUT · 3 channel of wake-ups · 4 the room's name
--       5 L (left) or R (revoked) · 6 … users
-- →     false: no such room; or tickets or false each

local now = clamped(tonumber(ARGV[1]))
local r = load_room(0, now, ARGV[2])
if not r then return false end
for i = 6, #ARGV do
  local user = ARGV[i]
  local lane, score = find_waiting(r, user)
  if lane then
    end_waiting(r, user, lane, score, ARGV[5], now)
  else
    local packed = redis.call('HGET', KEYS[TICKETS], user)
    local ticket = packed and cmsgpack.unpack(packed)
    if ticket and (ticket[STATE] == 'A' or ticket[STATE] == 'E') then
      end_promoted(r, user, ticket, ARGV[5], now)
    end
  end
end
local freed = r.slots < r.slots_read
save_slots(r)
if freed then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
local tickets = {}
for i = 6, #ARGV do tickets[#tickets + 1] = ticket_reply(r, ARGV[i]) end
return tickets
