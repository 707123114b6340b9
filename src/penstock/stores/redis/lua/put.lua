-- PUT: keep messages whose ids are all new to their partition.
--
-- KEYS  a group: generation, records, leases, counters, then the lanes, buckets and indexes its
--       plan points at
-- ARGV  1 groups (msgpack): { first key, first argument, generation, number of ids,
--         lanes   = { { key, from, to, counter, number, channel, news, earliest due } … },
--         buckets = { { key, from, to, counter, number, index key, member, earliest due } … } }
--         keys and arguments count from the group's first
--       a group's arguments: its ids · id, record … · score, id … of each lane · entries …
-- →     a group: { 'kept' }, or nothing was written: { 'layout' } (another generation holds) or
--       { 'known', record or nil …, lease or nil … } in the order of the ids

local groups = cmsgpack.unpack(ARGV[1])

local function keep(group)
  local k, a, generation, number, lanes, buckets = unpack(group)
  local records, leases, counters = KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  if tonumber(redis.call('GET', KEYS[k + 1]) or 0) ~= generation then return { 'layout' } end
  local known = hmget(records, ARGV, a + 1, a + number)
  for i = 1, number do
    if known[i] then return { 'known', known, hmget(leases, ARGV, a + 1, a + number) } end
  end
  variadic('HSET', records, ARGV, a + number + 1, a + 3 * number)
  for i = 1, #lanes do
    local key, from, to, counter, added, channel, news, earliest = unpack(lanes[i])
    local head = redis.call('ZRANGE', KEYS[k + key], 0, 0, 'WITHSCORES')
    variadic('ZADD', KEYS[k + key], ARGV, a + from, a + to)
    redis.call('HINCRBY', counters, counter, added)
    if not head[2] or tonumber(earliest) < tonumber(head[2]) then
      redis.call('PUBLISH', channel, news)
    end
  end
  for i = 1, #buckets do
    local key, from, to, counter, added, index, member, earliest = unpack(buckets[i])
    variadic('RPUSH', KEYS[k + key], ARGV, a + from, a + to)
    redis.call('HINCRBY', counters, counter, added)
    redis.call('ZADD', KEYS[k + index], 'LT', earliest, member)
  end
  redis.call('HINCRBY', counters, 'g' .. generation, number)
  return { 'kept' }
end

local answers = {}
for i = 1, #groups do answers[i] = keep(groups[i]) end
return answers
