-- LAYOUT: the one record of how many partitions there are, by generation.
--
-- KEYS  a group: layout
-- ARGV  1 groups (msgpack): { first key } · 2 step · 3 value · 4 routes "a,b" · 5 generation known
--       6 the caller's storage format
--       'read'      nothing is changed
--       'grow'      note that there are to be `value` partitions, unless a change is under way or
--                   there are as many already: the caller may not know of the last change
--       'promise'   note that routes (4) are to keep turns in `value` partitions, unless a change
--                   is under way, and only if there are so many
--       'publish'   the change to `value` partitions that follows the generation (5) is marked
--                   everywhere: it holds from now on
--       'forget'    the totals were `value` (all of them): drop the older ones
-- →     a group: { totals by generation "8,16" or nil, total under way or nil, routes that keep
--       turns, each with the partitions they are kept in, "a=8,b=16" or nil, the store's format
--       or nil }

local key = KEYS[cmsgpack.unpack(ARGV[1])[1][1] + 1]
local step = ARGV[2]
local value = ARGV[3]

local totals = redis.call('HGET', key, 'totals')
local pending = redis.call('HGET', key, 'pending')
local keyed = redis.call('HGET', key, 'keyed')
local _, generation = string.gsub(totals or '', '%d+', '')
local last = totals and tonumber(string.match(totals, '%d+$')) or 0

-- The routes that do not keep turns yet: the partition of a key is decided once.
local function new_routes()
  local new = {}
  for route in string.gmatch(ARGV[4], '[^,]+') do
    local known = string.find(',' .. (keyed or ''), ',' .. route .. '=', 1, true)
    if not known then new[#new + 1] = route end
  end
  return table.concat(new, ',')
end

if step == 'grow' and tonumber(value) > last and not pending then
  redis.call('HSET', key, 'pending', value)
  pending = value
elseif step == 'promise' and not pending and last == tonumber(value)
  and new_routes() ~= '' then
  redis.call('HSET', key, 'pending', value, 'promised', new_routes())
  pending = value
elseif step == 'publish' and pending == value and generation == tonumber(ARGV[5]) then
  if not totals then redis.call('HSET', key, 'format', ARGV[6]) end
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
return { { totals, pending, keyed, redis.call('HGET', key, 'format') } }
