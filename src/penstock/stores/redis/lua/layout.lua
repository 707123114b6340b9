-- LAYOUT: the one record of how many partitions there are, by generation.
--
-- KEYS  a group: layout
-- ARGV  1 groups (msgpack): { first key } · 2 step · 3 value · 4 routes "a,b"
--       'read'      nothing is changed
--       'grow'      note that there are to be `value` partitions, unless a change is under way or
--                   there are as many already: whoever asks may not know of the last change
--       'promise'   note that routes (4) are to keep turns in `value` partitions, unless a change
--                   is under way or there are more of them
--       'publish'   the change to `value` partitions is marked everywhere: it holds from now on
--       'forget'    the totals were `value` (all of them): drop what the older ones are kept for
-- →     a group: { totals by generation "8,16" or nil, total under way or nil, routes that keep
--       turns, each with the partitions they are kept in, "a=8,b=16" or nil }

local key = KEYS[cmsgpack.unpack(ARGV[1])[1][1] + 1]
local step = ARGV[2]
local value = ARGV[3]

local totals = redis.call('HGET', key, 'totals')
local pending = redis.call('HGET', key, 'pending')
local keyed = redis.call('HGET', key, 'keyed')
local last = totals and tonumber(string.match(totals, '%d+$')) or 0
local more = (step == 'grow' and tonumber(value) > last) or (step == 'promise' and tonumber(value) >= last)
if more and not pending then
  redis.call('HSET', key, 'pending', value)
  if step == 'promise' then redis.call('HSET', key, 'promised', ARGV[4]) end
  pending = value
elseif step == 'publish' and pending == value then
  totals = totals and (totals .. ',' .. value) or value
  redis.call('HSET', key, 'totals', totals)
  for route in string.gmatch(redis.call('HGET', key, 'promised') or '', '[^,]+') do
    keyed = (keyed and (keyed .. ',') or '') .. route .. '=' .. value
  end
  if keyed then redis.call('HSET', key, 'keyed', keyed) end
  redis.call('HDEL', key, 'pending', 'promised')
  pending = false
elseif step == 'forget' and totals == value and not pending then
  totals = string.gsub(totals, '%d+,', '0,')
  redis.call('HSET', key, 'totals', totals)
end
return { { totals, pending, keyed } }
