-- Ids of settled messages that may be forgotten: past the time, or more than are to be kept.
-- KEYS: of every group, the retired by the moment they were settled.
-- ARGV[1]: msgpack, a group each: {first key}; ARGV[2]: now (held against the server's own
-- time), ARGV[3]: how long they are kept, ARGV[4]: kept at most, ARGV[5]: limit. Returns of each group the ids, the oldest first.
-- @include redis_kit/common.lua
local answers = {}
local now = clamped(tonumber(ARGV[2]))
local before = string.format('(%.0f', now - tonumber(ARGV[3]))
local left = tonumber(ARGV[5])
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local retired = KEYS[group[1] + 1]
  local over = redis.call('ZCARD', retired) - tonumber(ARGV[4])
  local old = redis.call('ZCOUNT', retired, '-inf', before)
  local number = math.min(left, math.max(over, old, 0))
  answers[g] = number > 0 and redis.call('ZRANGE', retired, 0, number - 1) or {}
  left = left - number
end
return answers
