-- Forget ids: they are cancelled, or are about to be put elsewhere.
-- KEYS: of every group, the queues they may be in.
-- ARGV[1]: msgpack, a group each: {first key, first argument, number of keys, number of ids}
-- then the ids. Returns how many were there.
local answers = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local gone = 0
  for k = 1, group[3] do
    for i = 1, group[4] do
      gone = gone + redis.call('ZREM', KEYS[group[1] + k], ARGV[group[2] + i])
    end
  end
  answers[g] = gone
end
return answers
