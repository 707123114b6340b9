-- RECURRING_DUE: rows to look at, the earliest first, and when the next one is.
--
-- KEYS  a group: rows, wakes
-- ARGV  1 groups (msgpack): { first key } · 2 now · 3 limit
-- →     a group: { { row … }, wake of the first row that is not due or nil }
-- @include redis_kit/common.lua

local k = cmsgpack.unpack(ARGV[1])[1][1]
local now, limit = ARGV[2], tonumber(ARGV[3])
local rows, wakes = KEYS[k + 1], KEYS[k + 2]
local due = redis.call('ZRANGEBYSCORE', wakes, '-inf', now, 'LIMIT', 0, limit)
local found = get_many('HMGET', rows, due)
local next_wake = false
if #due < limit then
  local later = redis.call('ZRANGEBYSCORE', wakes, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  next_wake = later[2] and string.format('%.0f', tonumber(later[2])) or false
end
return { { found, next_wake } }
