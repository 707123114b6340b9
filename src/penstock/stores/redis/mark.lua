-- MARK: put a partition under a generation of the layout; never back to an older one.
--
-- A long field keeps the lease structures out of the compact encodings, in which every step
-- costs as much as there are entries.
--
-- KEYS  a group: generation, leases, tokens, grants, counters
-- ARGV  1 groups (msgpack): { first key } · 2 generation · 3 … fields of the routes paused
-- →     a group: the generation that holds now

local groups = cmsgpack.unpack(ARGV[1])
local generation = tonumber(ARGV[2])
local LONG = string.rep('\0', 80) -- no id has such characters

local answers = {}
for i = 1, #groups do
  local k = groups[i][1]
  local held = tonumber(redis.call('GET', KEYS[k + 1]) or 0)
  redis.call('HSET', KEYS[k + 2], LONG, '')
  redis.call('ZADD', KEYS[k + 3], '+inf', LONG)
  redis.call('HSET', KEYS[k + 4], LONG, '')
  if generation > held then -- a mark that comes late must not pause what was resumed since
    for j = 3, #ARGV do redis.call('HSET', KEYS[k + 5], ARGV[j], 1) end
    redis.call('SET', KEYS[k + 1], ARGV[2])
    held = generation
  end
  answers[i] = held
end
return answers
