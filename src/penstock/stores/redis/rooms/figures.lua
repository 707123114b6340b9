-- FIGURES: the current figures of rooms, and the totals of their earlier epochs.
--
-- KEYS  each room's 15
-- ARGV  1 now · 2 settings of rooms that were never PUT
-- →     each: false (no such room), or { outlook, waiting, admitted, entered, left, expired,
--       revoked, joined, promoted, and of earlier epochs: joined, promoted, left, expired }
-- @include stores/redis/rooms/common.lua

local now = clamped(tonumber(ARGV[1]))

local function figures(b)
  local r = load_room(b, now, ARGV[2])
  if not r then return false end
  local f = redis.call('HMGET', KEYS[b + ROOM], 'A', 'E', 'L', 'X', 'R', 'joined', 'promoted',
    'past_joined', 'past_promoted', 'past_L', 'past_X')
  local _, all = waiting_of(r)
  local reply = { outlook(r), all }
  for i = 1, #f do reply[#reply + 1] = tonumber(f[i] or 0) end
  return reply
end

local replies = {}
for b = 0, #KEYS - 1, KEYS_EACH do replies[#replies + 1] = figures(b) end
return replies
