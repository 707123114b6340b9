-- Shared by the claims: writes and reads the messages of a token in a partition.
-- A state `s` has `k` (its keys begin so: generation, records, leases, tokens, grants, counters),
-- `ids` taken now, `out` (id, record …) and `lease`.
-- @include redis_kit/common.lua
-- @include stores/redis/messages/grant_ids.lua

local char = string.char

-- What this round of the claim has been given before (its answer was lost), into `s`; how many. Its
-- lease begins again. False: this round has not been here.
local function granted_before(s, token, round, until_)
  local last = redis.call('HGET', KEYS[s.k + 5], token .. 'r')
  if not last then return false end
  local last_round, begins = struct.unpack('<I2I4', last)
  if last_round ~= round then return false end
  local ids = grant_ids(redis.call('HGET', KEYS[s.k + 5], token), begins)
  local found, held = get_many('HMGET', KEYS[s.k + 2], ids), get_many('HMGET', KEYS[s.k + 3], ids)
  local number = 0
  for j = 1, #ids do
    if found[j] and held[j] and string.sub(held[j], 1, 8) == token then
      s.out[#s.out + 1] = ids[j]
      s.out[#s.out + 1] = found[j]
      s.lease = held[j]
      number = number + 1
    end
  end
  if number > 0 then redis.call('ZADD', KEYS[s.k + 4], 'XX', 'GT', until_, token) end
  return number
end

-- Write down that the token holds `s.ids`.
local function grant(s, route, token, lease, until_, round)
  if #s.ids == 0 then return end
  local grants = KEYS[s.k + 5]
  local before = redis.call('HGET', grants, token) or struct.pack('<Bc0', #route, route)
  local fields, parts = {}, { before }
  for j, id in ipairs(s.ids) do
    fields[2 * j - 1], fields[2 * j] = id, lease
    parts[2 * j], parts[2 * j + 1] = char(#id), id
  end
  variadic('HSET', KEYS[s.k + 3], fields)
  redis.call('HSET', grants, token, table.concat(parts),
    token .. 'r', struct.pack('<I2I4', round, #before + 1))
  redis.call('HINCRBY', grants, token .. 'n', #s.ids)
  redis.call('ZADD', KEYS[s.k + 4], until_, token)
  redis.call('HINCRBY', KEYS[s.k + 6], 'l' .. route, #s.ids)
end
