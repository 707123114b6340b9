-- PROMOTE: open a bucket that came near into its lane, or into narrower buckets.
--
-- The record is the truth: an entry whose message has moved, left or is leased is dropped.
--
-- KEYS  a group: records, leases, bucket, index, lane, then the narrower buckets in order
-- ARGV  1 groups (msgpack): { first key, member in the index, start, priority, route,
--         narrower = { { start, width, member } … } }
--       2 now · 3 messages due before now + this are near · 4 entries to move at most
-- →     a group: { entries moved, entries left }
-- @include stores/redis/messages/record.lua

local groups = cmsgpack.unpack(ARGV[1])
local near = tonumber(ARGV[2]) + tonumber(ARGV[3])
local budget = tonumber(ARGV[4])

local function promote(group)
  local k, member, start, priority, route, narrower = unpack(group)
  local records, leases, bucket, index, lane =
    KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5]
  local entries = redis.call('LPOP', bucket, budget) or {}
  local ids, dues = {}, {}
  for i = 1, #entries do
    dues[i] = start + struct.unpack('<I4', entries[i])
    ids[i] = string.sub(entries[i], 5)
  end
  local found, held = get_many('HMGET', records, ids), get_many('HMGET', leases, ids)
  local scored, parts, firsts = {}, {}, {}
  for i = 1, #ids do
    if found[i] and not held[i] then
      local h = read_head(found[i])
      if h.state == SCHEDULED and h.due == dues[i] and h.priority == priority
        and route_of(found[i], h.at) == route then
        if dues[i] < near or #narrower == 0 then
          scored[#scored + 1] = dues[i]
          scored[#scored + 1] = ids[i]
        else
          local n = math.floor((dues[i] - narrower[1][1]) / narrower[1][2]) + 1
          local part = parts[n] or {}
          parts[n] = part
          part[#part + 1] = struct.pack('<I4', dues[i] - narrower[n][1]) .. ids[i]
          firsts[n] = math.min(firsts[n] or dues[i], dues[i])
        end
      end
    end
  end
  if #scored > 0 then variadic('ZADD', lane, scored) end
  for n, part in pairs(parts) do
    variadic('RPUSH', KEYS[k + 5 + n], part)
    redis.call('ZADD', index, 'LT', firsts[n], narrower[n][3])
  end
  local left = redis.call('LLEN', bucket)
  if left == 0 then redis.call('ZREM', index, member) end
  return { #entries, left }
end

local answers = {}
for i = 1, #groups do answers[i] = promote(groups[i]) end
return answers
