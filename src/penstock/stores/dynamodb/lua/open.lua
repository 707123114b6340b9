-- Say that this partition is in use and which routes are paused: what a flush takes away.
-- KEYS: of every group, its state. ARGV[1]: msgpack, a group each: {first key, first argument,
-- number of paused routes}; then the routes. Returns 1 where it was not in use before.
local answers = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local state = KEYS[group[1] + 1]
  answers[g] = 1 - redis.call('EXISTS', state)
  redis.call('DEL', state)
  redis.call('HSET', state, 'open', '1')
  for i = 1, group[3] do
    redis.call('HSET', state, 'p:' .. ARGV[group[2] + i], '1')
  end
end
return answers
