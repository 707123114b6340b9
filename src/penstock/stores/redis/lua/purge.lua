-- PURGE: forget settled messages past the retention time or count.
--
-- KEYS  a group: settled, records, counters, index by key
-- ARGV  1 groups (msgpack): { first key } · 2 settled before this are forgotten
--       3 number of settled kept in a group · 4 messages of a group to forget at most
-- →     a group: how many were forgotten

local groups = cmsgpack.unpack(ARGV[1])
local before = tonumber(ARGV[2])
local cap = tonumber(ARGV[3])
local budget = tonumber(ARGV[4])

local answers = {}
for i = 1, #groups do
  local k = groups[i][1]
  answers[i] = forget(KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], before, cap, budget)
end
return answers
