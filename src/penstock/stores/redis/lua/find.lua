-- FIND: records by id, with their leases.
--
-- KEYS  a group: records, leases
-- ARGV  1 groups (msgpack): { first key, first argument, number of ids }
--       a group's arguments: its ids
-- →     a group: { record or nil …, lease or nil … } in the order of the ids

local groups = cmsgpack.unpack(ARGV[1])

local answers = {}
for i = 1, #groups do
  local k, a, number = unpack(groups[i])
  answers[i] = {
    hmget(KEYS[k + 1], ARGV, a + 1, a + number),
    hmget(KEYS[k + 2], ARGV, a + 1, a + number),
  }
end
return answers
