-- EXPIRED: messages whose lease has ended, without their payloads, the longest ended first.
--
-- KEYS  a group: records, leases, tokens, grants, generation
-- ARGV  1 groups (msgpack): { first key } · 2 now · 3 tokens of a group at most
--       4 messages of a group at most
-- →     a group: { generation or nil, id, record, lease … }. A token that holds nothing any more is
--       forgotten.
-- @include stores/redis/messages/record.lua
-- @include stores/redis/messages/grant_ids.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = clamped(tonumber(ARGV[2]))
local max_tokens = tonumber(ARGV[3])
local limit = tonumber(ARGV[4])

local function expired(k)
  local records, leases, tokens, grants = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  local answer = { redis.call('GET', KEYS[k + 5]) }

  -- How many messages the token still leases; they are added to the answer.
  local function held_by(token, left)
    local grant = redis.call('HGET', grants, token)
    local ids = grant and grant_ids(grant) or {}
    local found, held = get_many('HMGET', records, ids), get_many('HMGET', leases, ids)
    local number = 0
    for i = 1, #ids do
      if number >= left then break end
      if found[i] and held[i] and sub(held[i], 1, 8) == token then
        answer[#answer + 1] = ids[i]
        answer[#answer + 1] = without_payload(found[i])
        answer[#answer + 1] = held[i]
        number = number + 1
      end
    end
    return number
  end

  local left = limit
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', tokens, '-inf', now, 'LIMIT', 0, max_tokens)) do
    if left <= 0 then break end
    local number = held_by(token, left)
    if number == 0 then end_token(tokens, grants, token) end
    left = left - number
  end
  return answer
end

local answers = {}
for i = 1, #groups do answers[i] = expired(groups[i][1]) end
return answers
