-- EXPIRED: tokens whose lease has ended, with the route each was granted for.
--
-- KEYS  a group: tokens, grants, generation
-- ARGV  1 groups (msgpack): { first key } · 2 now · 3 tokens of a group at most
-- →     a group: { generation or nil, token, route … }, the longest ended first
-- @include redis_kit/common.lua
-- @include stores/redis/messages/grant_ids.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = clamped(tonumber(ARGV[2]))
local limit = tonumber(ARGV[3])

local answers = {}
for i = 1, #groups do
  local tokens, grants = KEYS[groups[i][1] + 1], KEYS[groups[i][1] + 2]
  local ended = redis.call('ZRANGEBYSCORE', tokens, '-inf', now, 'LIMIT', 0, limit)
  local answer = { redis.call('GET', KEYS[groups[i][1] + 3]) }
  for j = 1, #ended do
    local grant = redis.call('HGET', grants, ended[j])
    if grant then
      answer[#answer + 1] = ended[j]
      answer[#answer + 1] = grant_route(grant)
    else
      redis.call('ZREM', tokens, ended[j])
    end
  end
  answers[i] = answer
end
return answers
