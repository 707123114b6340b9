-- POLICY_MARK: tell a counter shard which version of the rules holds; never back to an older one.
--
-- KEYS  a group: version
-- ARGV  1 groups (msgpack): { first key } · 2 version
-- →     a group: 1
-- @include stores/redis/policies/common.lua

local groups = cmsgpack.unpack(ARGV[1])
local answers = {}
for i = 1, #groups do
  is_current(KEYS[groups[i][1] + 1], tonumber(ARGV[2]), true)
  answers[i] = 1
end
return answers
