-- REAP: return the messages of tokens whose lease has ended; cancelled if that was asked.
--
-- KEYS  a group: records, leases, tokens, grants, counters, settled, then the lanes of priority
--       9 … 0 of the token's route and, if it keeps turns, its line, turns and busy
-- ARGV  1 groups (msgpack): { first key, token, counters of the lanes, whether it keeps turns }
--       2 now · 3 messages at most · 4 channel · 5 route of all groups
-- →     a group: { id, state, attempt … }; empty if the token was extended or settled meanwhile
-- @include stores/redis/messages/turns.lua
-- @include stores/redis/messages/grant_ids.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = clamped(tonumber(ARGV[2]))
local left = tonumber(ARGV[3])
local channel = ARGV[4]
local route = ARGV[5]

local function reap(group)
  local k, token, fields, keyed = unpack(group)
  local records, leases, tokens, grants = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  local counters, settled = KEYS[k + 5], KEYS[k + 6]
  local ended = redis.call('ZSCORE', tokens, token)
  local grant = redis.call('HGET', grants, token)
  if left <= 0 or not ended or tonumber(ended) > now or not grant then return {} end

  local ids = grant_ids(grant)
  local found, held = get_many('HMGET', records, ids), get_many('HMGET', leases, ids)
  local answer, counts, closed, seen = {}, {}, 0, 0
  for i = 1, #ids do
    if left <= 0 then break end
    seen = i
    if found[i] and held[i] and string.sub(held[i], 1, 8) == token then
      local _, claimed, asked = read_lease(held[i])
      local h = read_head(found[i])
      h.attempt, h.claimed, h.nonce = h.attempt + 1, 0, NO_NONCE
      local added = event(now, 'lease_lost', false, h.attempt)
      count(counts, 'l' .. route, -1)
      if asked then
        h.state, h.settled = CANCELLED, now
        count(counts, tostring(CANCELLED), 1)
        redis.call('RPUSH', settled, struct.pack('<I6', now) .. ids[i])
      else
        added = event(claimed, 'released', false, h.attempt) .. added
        local lane = 10 - h.priority
        count(counts, fields[lane], 1)
        redis.call('ZADD', KEYS[k + 6 + lane], h.due, ids[i])
        redis.call('PUBLISH', channel, string.format('%.0f %s', h.due, route))
      end
      redis.call('HDEL', leases, ids[i])
      redis.call('HSET', records, ids[i], rewrite(found[i], h, added, false, false))
      if keyed then
        local line, turns, busy = KEYS[k + 17], KEYS[k + 18], KEYS[k + 19]
        local key = key_of(found[i], ids[i])
        if not asked then line_up(line, turns, key, h, ids[i]) end
        make_way(line, turns, busy, key, ids[i])
      end
      answer[#answer + 1] = ids[i]
      answer[#answer + 1] = h.state
      answer[#answer + 1] = h.attempt
      closed = closed + 1
      left = left - 1
    end
  end
  if seen == #ids then
    redis.call('HDEL', grants, token, token .. 'n', token .. 'r')
    redis.call('ZREM', tokens, token)
  else
    local rest = { struct.pack('<Bc0', #route, route) }
    for i = seen + 1, #ids do rest[#rest + 1] = struct.pack('<Bc0', #ids[i], ids[i]) end
    redis.call('HSET', grants, token, table.concat(rest))
    redis.call('HDEL', grants, token .. 'r')
    redis.call('HINCRBY', grants, token .. 'n', -closed)
  end
  write_counts(counters, counts)
  return answer
end

local answers = {}
for i = 1, #groups do answers[i] = reap(groups[i]) end
return answers
