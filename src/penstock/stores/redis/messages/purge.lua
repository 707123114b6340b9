-- PURGE: forget settled messages past the retention time or count.
--
-- KEYS  a group: settled, records, counters, index by key, unused pointers
-- ARGV  1 groups (msgpack): { first key } · 2 now · 3 how long settled ones are kept
--       4 number of settled kept in a group · 5 messages of a group to forget at most
-- →     a group: how many were forgotten
-- @include stores/redis/messages/record.lua

local groups = cmsgpack.unpack(ARGV[1])
local before = clamped(tonumber(ARGV[2])) - tonumber(ARGV[3])
local cap = tonumber(ARGV[4])
local budget = tonumber(ARGV[5])

local answers = {}
for i = 1, #groups do
  local k = groups[i][1]
  answers[i] = forget(KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], before, cap,
    budget)
end
return answers
