-- FIND: records by id, with their leases.
--
-- KEYS  a group: records, leases, generation
-- ARGV  1 groups (msgpack): { first key, first argument, number of ids }
--       a group's arguments: its ids
-- →     a group: { record or nil …, lease or nil …, the generation its partition is under }, the
--       first two in the order of the ids. Whoever knows an older one may look in the wrong place.
-- @include redis_kit/common.lua

local groups = cmsgpack.unpack(ARGV[1])

local answers = {}
for i = 1, #groups do
  local k, a, number = unpack(groups[i])
  answers[i] = {
    get_many('HMGET', KEYS[k + 1], ARGV, a + 1, a + number),
    get_many('HMGET', KEYS[k + 2], ARGV, a + 1, a + number),
    tonumber(redis.call('GET', KEYS[k + 3]) or 0),
  }
end
return answers
