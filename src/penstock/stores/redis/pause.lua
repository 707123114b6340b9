-- PAUSE: note in a partition that a route is paused, or that it is not.
--
-- KEYS  a group: counters
-- ARGV  1 groups (msgpack): { first key } · 2 field of the route · 3 '1' paused, '0' not
-- →     a group: 1

local groups = cmsgpack.unpack(ARGV[1])
local field = ARGV[2]
local paused = ARGV[3] == '1'

local answers = {}
for i = 1, #groups do
  local key = KEYS[groups[i][1] + 1]
  if paused then redis.call('HSET', key, field, 1) else redis.call('HDEL', key, field) end
  answers[i] = 1
end
return answers
