-- Pause or resume a route in partitions that are in use.
-- KEYS: of every group, its state. ARGV[1]: msgpack, a group each: {first key}
-- ARGV[2]: route, ARGV[3]: 1 paused, 0 not. Returns 1 where it was noted.
local answers = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local state = KEYS[group[1] + 1]
  if redis.call('HEXISTS', state, 'open') == 0 then
    answers[g] = 0
  else
    if ARGV[3] == '1' then
      redis.call('HSET', state, 'p:' .. ARGV[2], '1')
    else
      redis.call('HDEL', state, 'p:' .. ARGV[2])
    end
    answers[g] = 1
  end
end
return answers
