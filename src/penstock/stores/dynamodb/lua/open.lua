-- Copy the paused routes into partitions, and take these into use: what a flush takes away.
-- A list of paused routes that is older than the one a partition has changes nothing there.
-- KEYS: of every group, its state. ARGV[1]: msgpack, a group each: {first key, first argument,
-- number of paused routes}; ARGV[2]: version of the list; ARGV[3]: 1: take into use;
-- then the routes. Returns 1 where it was not in use before.
local version, use = tonumber(ARGV[2]), ARGV[3] == '1'
local answers = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local state = KEYS[group[1] + 1]
  local in_use = redis.call('HEXISTS', state, 'open') == 1
  answers[g] = in_use and 0 or 1
  if version >= tonumber(redis.call('HGET', state, 'version') or '0') then
    redis.call('DEL', state)
    redis.call('HSET', state, 'version', version)
    for i = 1, group[3] do
      redis.call('HSET', state, 'p:' .. ARGV[group[2] + i], '1')
    end
  end
  if in_use or use then redis.call('HSET', state, 'open', '1') end
end
return answers
