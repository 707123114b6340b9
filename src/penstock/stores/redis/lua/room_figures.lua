-- FIGURES: what a room holds now.
--
-- KEYS  a room's 13
-- ARGV  1 now · 2 settings of rooms nobody has PUT
-- →     false: no such room; or { outlook, waiting, admitted, entered, left, expired, revoked,
--       joined, promoted }

local r = load_room(0, clamped(tonumber(ARGV[1])), ARGV[2])
if not r then return false end
local f = redis.call('HMGET', KEYS[ROOM], 'A', 'E', 'L', 'X', 'R', 'joined', 'promoted')
local _, all = waiting_of(r)
local reply = { outlook(r), all }
for i = 1, 7 do reply[#reply + 1] = tonumber(f[i] or 0) end
return reply
