-- INDEX: one step towards an index by key of messages that were there before it.
--
-- From the first step on every script that writes a record keeps the index in step, so that
-- a process that has scanned all records once since then may call it complete. The index's first
-- entry says how it stands, and by its stamp whether it still is the one a step belongs to.
--
-- KEYS  a group: index by key, records
-- ARGV  1 groups (msgpack): { first key, cursor ('0' begins), stamp of the step before or '' }
--       2 stamp of an index begun now · 3 about how many records to look at
-- →     a group: { next cursor ('': it is complete), stamp }
-- @include stores/redis/messages/record.lua

local groups = cmsgpack.unpack(ARGV[1])
local fresh = ARGV[2]
local number = ARGV[3]
local BUILDING, COMPLETE = '\0\0b', '\0\0c' -- no key begins so, and they come first

local function step(group)
  local k, cursor, stamp = unpack(group)
  local index, records = KEYS[k + 1], KEYS[k + 2]
  local first = redis.call('ZRANGE', index, 0, 0)[1]
  if first and sub(first, 1, 3) == COMPLETE then return { '', sub(first, 4) } end
  if not first then
    redis.call('ZADD', index, 0, BUILDING .. fresh)
    first = BUILDING .. fresh
  end
  if sub(first, 4) ~= stamp then cursor = '0' end
  local found = redis.call('HSCAN', records, cursor, 'COUNT', number)
  local keyed = {}
  for i = 1, #found[2], 2 do
    local entry = key_entry(found[2][i + 1], found[2][i])
    if entry then keyed[#keyed + 1], keyed[#keyed + 2] = 0, entry end
  end
  if #keyed > 0 then variadic('ZADD', index, keyed) end
  if found[1] ~= '0' then return { found[1], sub(first, 4) } end
  redis.call('ZREM', index, first)
  redis.call('ZADD', index, 0, COMPLETE .. sub(first, 4))
  return { '', sub(first, 4) }
end

local answers = {}
for i = 1, #groups do answers[i] = step(groups[i]) end
return answers
