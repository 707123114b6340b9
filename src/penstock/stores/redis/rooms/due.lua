-- DUE: take rooms to look at, so that no other process looks at them for a while.
--
-- KEYS  1 the rooms
-- ARGV  1 now · 2 limit · 3 when they are due again
-- →     names

local names = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, name in ipairs(names) do redis.call('ZADD', KEYS[1], ARGV[3], name) end
return names
