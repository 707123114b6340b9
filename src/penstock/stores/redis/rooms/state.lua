-- STATE: open, pause or close a room, or reset it: a new epoch without visitors.
-- A copy of `penstock.model.room_steps.set_state` and `reset`.
--
-- KEYS  a room's 15
-- ARGV  1 now · 2 settings of rooms that were never PUT · 3 state, or 'reset'
-- →     { settings, state, epoch }, or false: no such room
-- @include stores/redis/rooms/common.lua

local now = clamped(tonumber(ARGV[1]))
local r = load_room(0, now, ARGV[2])
if not r then return false end
if ARGV[3] == 'reset' then
  for i = WAITING, LATE do redis.call('UNLINK', KEYS[i]) end
  redis.call('SET', KEYS[SLOTS], 0)
  for _, count in ipairs({ 'joined', 'promoted', 'L', 'X' }) do -- totals never go back
    local number = redis.call('HGET', KEYS[ROOM], count)
    if number then redis.call('HINCRBY', KEYS[ROOM], 'past_' .. count, number) end
  end
  redis.call('HDEL', KEYS[ROOM], 'A', 'E', 'L', 'X', 'R', 'joined', 'promoted', 'shares',
    'flow_since', 'flow_count', 'flow_before')
  redis.call('HINCRBY', KEYS[ROOM], 'epoch', 1)
else
  redis.call('HSET', KEYS[ROOM], 'state', ARGV[3])
end
local f = redis.call('HMGET', KEYS[ROOM], 'state', 'epoch')
return { r.raw, f[1], f[2] }
