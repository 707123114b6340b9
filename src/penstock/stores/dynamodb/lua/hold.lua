-- Say until when something is busy.
-- KEYS: of every group, its busy and ends.
-- ARGV[1]: msgpack, a group each: {first key, first argument, number}
-- ARGV[2]: until, ARGV[3]: XX (only what is busy) or nothing (it is, whatever is known here);
-- then key \0 id again and again. Returns how many each group had.
local answers = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local k, place, number = unpack(group)
  for i = 1, number do
    if ARGV[3] == 'XX' then
      redis.call('ZADD', KEYS[k + 2], 'XX', ARGV[2], ARGV[place + i])
    else
      redis.call('ZADD', KEYS[k + 1], 0, ARGV[place + i])
      redis.call('ZADD', KEYS[k + 2], ARGV[2], ARGV[place + i])
    end
  end
  answers[g] = number
end
return answers
