-- POLICY_LIST: a shard's part of a suppression list, put together step by step and then all at
-- once in the place of the one before.
--
-- The unfinished list always has the empty key, which no message has: so one that is gone
-- was finished, by a call whose answer was lost, and nothing is left to do.
--
-- KEYS  a group: list, list under way
-- ARGV  1 groups (msgpack): { first key, first argument, number of keys }
--       2 '1': finish, '0': add keys · 3 time to live of an unfinished list (ms)
--       a group's arguments: keys of the list
-- →     a group: 1
-- @include redis_kit/common.lua

local groups = cmsgpack.unpack(ARGV[1])
local finish = ARGV[2] == '1'

local answers = {}
for i = 1, #groups do
  local k, a, number = unpack(groups[i])
  local list, under_way = KEYS[k + 1], KEYS[k + 2]
  if not finish then
    redis.call('SADD', under_way, '')
    if number > 0 then variadic('SADD', under_way, ARGV, a + 1, a + number) end
    redis.call('PEXPIRE', under_way, ARGV[3])
  elseif redis.call('EXISTS', under_way) == 1 then
    redis.call('RENAME', under_way, list)
    redis.call('PERSIST', list)
  end
  answers[i] = 1
end
return answers
