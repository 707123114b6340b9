-- LAYOUT: the one record of how many partitions there are, by generation.
--
-- KEYS  a group: layout
-- ARGV  1 groups (msgpack): { first key } · 2 step · 3 value
--       'read'      nothing is changed
--       'grow'      note that there are to be `value` partitions, unless a change is under way
--       'publish'   the change to `value` partitions is marked everywhere: it holds from now on
--       'forget'    the totals were `value` (all of them): drop what the older ones are kept for
-- →     a group: { totals by generation "8,16" or nil, total under way or nil }

local key = KEYS[cmsgpack.unpack(ARGV[1])[1][1] + 1]
local step = ARGV[2]
local value = ARGV[3]

local totals = redis.call('HGET', key, 'totals')
local pending = redis.call('HGET', key, 'pending')
if step == 'grow' and not pending then
  redis.call('HSET', key, 'pending', value)
  pending = value
elseif step == 'publish' and pending == value then
  totals = totals and (totals .. ',' .. value) or value
  redis.call('HSET', key, 'totals', totals)
  redis.call('HDEL', key, 'pending')
  pending = false
elseif step == 'forget' and totals == value and not pending then
  totals = string.gsub(totals, '%d+,', '0,')
  redis.call('HSET', key, 'totals', totals)
end
return { { totals, pending } }
