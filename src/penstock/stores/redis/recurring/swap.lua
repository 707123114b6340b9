-- RECURRING_SWAP: write rows that are still the ones that were read.
--
-- A row with the mark of this very call was written by it before: its answer was lost.
--
-- KEYS  a group: rows, wakes, ids, managed
-- ARGV  1 groups (msgpack): { first key, first argument, number of swaps }
--       2 channel of wake-ups · 3 subject of the wake-up · 4 mark of this call
--       a swap's arguments: id, expected revision (0: none), revision ('': delete), wake or '',
--         '1' if settings manage it, row
-- →     a group: { 1 for a swap that is done, else 0 … }

local k, a, number = unpack(cmsgpack.unpack(ARGV[1])[1])
local channel, about, mark = ARGV[2], ARGV[3], ARGV[4]
local rows, wakes, ids, managed = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
local head = redis.call('ZRANGE', wakes, 0, 0, 'WITHSCORES')[2]
local nearest

local function swap(place, id, expected, revision, wake, is_managed, row)
  local stored = redis.call('HGET', rows, id)
  local value = table.concat({ revision, mark .. place, row }, ' ')
  if stored == value then return 1 end
  if (stored and string.match(stored, '^%d+') or '0') ~= expected then return 0 end
  if revision == '' then
    redis.call('HDEL', rows, id)
    redis.call('ZREM', wakes, id)
    redis.call('ZREM', ids, id)
    redis.call('SREM', managed, id)
    return 1
  end
  redis.call('HSET', rows, id, value)
  if not stored then redis.call('ZADD', ids, 0, id) end
  redis.call(is_managed == '1' and 'SADD' or 'SREM', managed, id)
  if wake == '' then
    redis.call('ZREM', wakes, id)
  else
    redis.call('ZADD', wakes, wake, id)
    if not nearest or tonumber(wake) < tonumber(nearest) then nearest = wake end
  end
  return 1
end

local done = {}
for i = 1, number do
  local at = a + (i - 1) * 6
  done[i] = swap(i, unpack(ARGV, at + 1, at + 6))
end
if nearest and (not head or tonumber(nearest) < tonumber(head)) then
  redis.call('PUBLISH', channel, nearest .. ' ' .. about)
end
return { done }
