-- PUT_ONE: keep one message whose id is new to its partition.
--
-- KEYS  generation, records, counters, index by key, the lane or bucket, of a bucket the index
-- ARGV  generation, id, record, entry in the index by key ('' if its key is its id), counter, due,
--       then of a bucket: entry, member of the index · of a lane: channel, news
-- →     1: it is kept, by this call or the same one before, whose answer was lost
--       0: nothing was written, because the id is known or another generation holds

local generation, id, record, keyed, counter, due = unpack(ARGV, 1, 6)
local place, index = KEYS[5], KEYS[6]

if tonumber(redis.call('GET', KEYS[1]) or 0) ~= tonumber(generation) then return 0 end
if redis.call('HSETNX', KEYS[2], id, record) == 0 then
  return redis.call('HGET', KEYS[2], id) == record and 1 or 0
end
if keyed ~= '' and redis.call('EXISTS', KEYS[4]) == 1 then
  redis.call('ZADD', KEYS[4], 0, keyed)
end
if index then
  local entry, member = ARGV[7], ARGV[8]
  redis.call('RPUSH', place, entry)
  redis.call('ZADD', index, 'LT', due, member)
else
  local channel, news = ARGV[7], ARGV[8]
  local head = redis.call('ZRANGE', place, 0, 0, 'WITHSCORES')
  redis.call('ZADD', place, due, id)
  if not head[2] or tonumber(due) < tonumber(head[2]) then redis.call('PUBLISH', channel, news) end
end
redis.call('HINCRBY', KEYS[3], counter, 1)
redis.call('HINCRBY', KEYS[3], 'g' .. generation, 1)
return 1
