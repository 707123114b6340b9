-- EXTEND: move the end of leases; tokens that hold nothing here any more are left alone.
--
-- KEYS  a group: tokens
-- ARGV  1 groups (msgpack): { first key } · 2 until · 3 now · 4 … tokens
-- →     a group: 1
-- @include redis_kit/common.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = tonumber(ARGV[3])
-- A caller whose clock is ahead must not get leases that are longer by that difference.
local until_ = string.format('%.0f', tonumber(ARGV[2]) - now + clamped(now))

local scored = {}
for i = 4, #ARGV do
  scored[#scored + 1] = until_
  scored[#scored + 1] = ARGV[i]
end
local answers = {}
for i = 1, #groups do
  local key = KEYS[groups[i][1] + 1]
  for from = 1, #scored, CHUNK do
    redis.call('ZADD', key, 'XX', unpack(scored, from, math.min(from + CHUNK - 1, #scored)))
  end
  answers[i] = 1
end
return answers
