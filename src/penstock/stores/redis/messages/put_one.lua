-- PUT_ONE: keep one message whose id is new to its partition.
-- A copy of `penstock.model.lifecycle.put` for new ids.
--
-- KEYS  generation, records, counters, index by key, the lane or bucket, of a bucket the index
-- ARGV  generation, counter, then of a bucket: member of the index, '' · of a lane: channel, route
--       id, record, entry in the index by key ('' if its key is its id), due, of a bucket with its
--       offset (4 bytes) before it
-- →     1: it is kept, by this call or the same one before, whose answer was lost
--       0: nothing was written, because the id is known or another generation holds

local generation, counter, where, route, id, record, keyed, due = unpack(ARGV)
local call = redis.call
local place, index = KEYS[5], KEYS[6]

if call('GET', KEYS[1]) ~= generation then return 0 end
if call('HSETNX', KEYS[2], id, record) == 0 then
  return call('HGET', KEYS[2], id) == record and 1 or 0
end
if keyed ~= '' and call('EXISTS', KEYS[4]) == 1 then call('ZADD', KEYS[4], 0, keyed) end
if index then
  call('RPUSH', place, string.sub(due, 1, 4) .. id)
  call('ZADD', index, 'LT', string.sub(due, 5), where)
else
  local head = call('ZRANGE', place, 0, 0, 'WITHSCORES')
  call('ZADD', place, due, id)
  if not head[2] or tonumber(due) < tonumber(head[2]) then
    call('PUBLISH', where, due .. ' ' .. route)
  end
end
call('HINCRBY', KEYS[3], counter, 1)
call('HINCRBY', KEYS[3], 'g' .. generation, 1)
return 1
