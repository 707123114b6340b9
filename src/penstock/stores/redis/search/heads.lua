-- HEADS: the first bytes of records, which hold state and due, whatever the payloads.
--
-- KEYS  a group: records
-- ARGV  1 groups (msgpack): { first key, first argument, number of ids } · 2 length of a head
--       a group's arguments: its ids
-- →     a group: { head or nil … }
-- @include redis_kit/common.lua

local groups = cmsgpack.unpack(ARGV[1])
local length = tonumber(ARGV[2])

local answers = {}
for i = 1, #groups do
  local k, a, number = unpack(groups[i])
  local found = get_many('HMGET', KEYS[k + 1], ARGV, a + 1, a + number)
  for j = 1, number do
    if found[j] then found[j] = string.sub(found[j], 1, length) end
  end
  answers[i] = found
end
return answers
