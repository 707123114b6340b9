-- PUT: make a room or change its settings.
-- A copy of `penstock.model.room_steps.configure`.
--
-- KEYS  a room's 15
-- ARGV  1 now · 2 settings (JSON) · 3 state, or '' to leave it · 4 state if the room is new
-- →     { settings, state, epoch }
-- @include stores/redis/rooms/common.lua

local now = clamped(tonumber(ARGV[1]))
local new = cjson.decode(ARGV[2])
local old = redis.call('HMGET', KEYS[ROOM], 'state', 'epoch', 'lanes', 'settings')
local state = ARGV[3]
if state == '' then state = old[4] and old[1] or ARGV[4] end
if not old[2] then redis.call('HSET', KEYS[ROOM], 'epoch', 1, 'attended', now) end

-- A lane keeps its place; visitors of a removed lane wait on in the default one.
local index, taken = {}, {}
for lane, i in pairs(old[3] and cjson.decode(old[3]) or {}) do
  if new.lanes[lane] then
    index[lane], taken[i] = i, true
  else
    redis.call('ZUNIONSTORE', KEYS[WAITING], 2, KEYS[WAITING], KEYS[WAITING + i])
    redis.call('DEL', KEYS[WAITING + i])
  end
end
local free = 1
for lane in pairs(new.lanes) do
  if lane ~= DEFAULT and not index[lane] then
    while taken[free] do free = free + 1 end
    index[lane], taken[free] = free, true
  end
end
redis.call('HSET', KEYS[ROOM], 'settings', ARGV[2], 'state', state)
if next(index) then
  redis.call('HSET', KEYS[ROOM], 'lanes', cjson.encode(index))
else
  redis.call('HDEL', KEYS[ROOM], 'lanes')
end
return { ARGV[2], state, redis.call('HGET', KEYS[ROOM], 'epoch') }
