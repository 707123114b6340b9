-- FIND: records by id, with their leases.
--
-- KEYS  a group: records, leases, generation
-- ARGV  1 groups (msgpack): { first key, first argument, number of ids, whether to leave payloads
--         out }
--       a group's arguments: its ids
-- →     a group: { record or nil …, lease or nil …, the generation its partition is under }, the
--       first two in the order of the ids. A caller with an older one may read the wrong partition.
-- @include stores/redis/messages/record.lua

local groups = cmsgpack.unpack(ARGV[1])

local answers = {}
for i = 1, #groups do
  local k, a, number, bare = unpack(groups[i])
  local records = get_many('HMGET', KEYS[k + 1], ARGV, a + 1, a + number)
  if bare then
    for r = 1, number do records[r] = records[r] and without_payload(records[r]) end
  end
  answers[i] = {
    records,
    get_many('HMGET', KEYS[k + 2], ARGV, a + 1, a + number),
    tonumber(redis.call('GET', KEYS[k + 3]) or 0),
  }
end
return answers
