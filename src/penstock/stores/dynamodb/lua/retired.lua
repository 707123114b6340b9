-- Ids of settled messages that may be forgotten: past the time, or more than are to be kept.
-- KEYS: of every group, the retired by the moment they were settled.
-- ARGV[1]: msgpack, a group each: {first key}; ARGV[2]: settled before, ARGV[3]: kept at most,
-- ARGV[4]: limit. Returns of each group the ids, the oldest first.
local answers = {}
local left = tonumber(ARGV[4])
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local retired = KEYS[group[1] + 1]
  local over = redis.call('ZCARD', retired) - tonumber(ARGV[3])
  local old = redis.call('ZCOUNT', retired, '-inf', '(' .. ARGV[2])
  local number = math.min(left, math.max(over, old, 0))
  answers[g] = number > 0 and redis.call('ZRANGE', retired, 0, number - 1) or {}
  left = left - number
end
return answers
