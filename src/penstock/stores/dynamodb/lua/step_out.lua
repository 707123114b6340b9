-- Take ids out of the lines of their keys: they are cancelled, or about to wait in another place.
-- KEYS: of every group, its line and turns.
-- ARGV[1]: msgpack, a group each: {first key, first argument, number of entries}
-- then (entry, key) again and again. Returns how many were there.
local answers = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local first, place, number = unpack(group)
  local gone = 0
  for _ = 1, number do
    gone = gone + redis.call('ZREM', KEYS[first + 1], ARGV[place + 1])
    -- What was held back may have its turn: the next claim looks.
    redis.call('ZADD', KEYS[first + 2], 'LT', 0, ARGV[place + 2])
    place = place + 2
  end
  answers[g] = gone
end
return answers
