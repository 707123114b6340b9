-- Shared by scripts that read or write records: records, leases, counters.
-- A record's layout is written down in records.py.
-- @include redis_kit/common.lua

local TOUCHED, KEY, EVENTS, ERROR, EXTRAS, HEADERS, DECIDED = 1, 2, 4, 8, 16, 32, 64
local AWAY = 128 -- the id's own partition has a pointer to this one
local SCHEDULED, LEASED, DELIVERED, DEAD = 0, 1, 2, 3
local ELSEWHERE = 7 -- no message but a pointer (pointers.py): its id is in another partition
local NO_NONCE = '\0\0\0\0'

-- The head of a record as a table, with the offset at which the route begins.
local function read_head(record)
  local h = {}
  local at
  h.state, h.flags, h.priority, h.generation, h.edition, h.version, h.due, h.created, at =
    struct.unpack('<BBBBI2I3I6I6', record)
  if bit.band(h.flags, TOUCHED) ~= 0 then
    h.attempt, h.floor, h.claimed, h.settled, h.nonce, at =
      struct.unpack('<I2I2I6I6c4', record, at)
  else
    h.attempt, h.floor, h.claimed, h.settled, h.nonce = 0, 0, 0, 0, NO_NONCE
  end
  h.at = at
  return h
end

-- Where the section that starts at `at` ends, if the flag says that it is there.
local function past(record, at, flags, flag, format, size)
  if bit.band(flags, flag) == 0 then return at end
  return at + size + struct.unpack(format, record, at)
end

local function route_of(record, at)
  local length = string.byte(record, at)
  return string.sub(record, at + 1, at + length)
end

-- The entry of a message in the index by key; false: its key is its id and needs no entry.
local function key_entry(record, id)
  local flags = byte(record, 2)
  if bit.band(flags, KEY) == 0 then return false end
  local at = bit.band(flags, TOUCHED) ~= 0 and 42 or 22
  local finish = at + byte(record, at)
  local low, high = byte(record, finish + 1, finish + 2)
  return sub(record, finish + 3, finish + 2 + low + 256 * high) .. '\0' .. id
end

-- True if this partition has an index by key; an empty one has a marker entry.
local function by_key(index)
  return redis.call('EXISTS', index) == 1
end

-- The record up to its payload.
local function without_payload(record)
  local flags = byte(record, 2)
  if byte(record, 1) == ELSEWHERE then return record end
  local at = bit.band(flags, TOUCHED) ~= 0 and 42 or 22
  at = past(record, at + 1 + byte(record, at), flags, KEY, '<I2', 2)
  at = past(record, at, flags, EVENTS, '<I2', 2)
  at = past(record, at, flags, ERROR, '<I2', 2)
  at = past(record, at, flags, DECIDED, '<I2', 2)
  at = past(record, at, flags, EXTRAS, '<I4', 4)
  return sub(record, 1, past(record, at, flags, HEADERS, '<I4', 4) - 1)
end

-- A delivered message's record: without headers and payload, with `decided` (false: as it was).
-- The lease has the moment of the claim as the record wants it.
local function bare(record, lease, moment, nonce, decided)
  local flags = byte(record, 2)
  local at, counted = 22, '\1\0\0\0'
  if bit.band(flags, TOUCHED) ~= 0 then
    at = 42
    counted = struct.pack('<I2', math.min(struct.unpack('<I2', record, 22) + 1, 65535))
      .. string.sub(record, 24, 25)
  end
  local key_end = past(record, at + 1 + byte(record, at), flags, KEY, '<I2', 2)
  local finish = past(record, key_end, flags, EVENTS, '<I2', 2)
  finish = past(record, finish, flags, ERROR, '<I2', 2)
  local old_end = past(record, finish, flags, DECIDED, '<I2', 2)
  local extras_end = past(record, old_end, flags, EXTRAS, '<I4', 4) - 1
  if decided then
    flags = bit.bor(flags, DECIDED)
    decided = struct.pack('<I2', #decided) .. decided
  else
    decided = sub(record, finish, old_end - 1)
  end
  flags = bit.bor(bit.band(flags, bit.bnot(HEADERS)), TOUCHED)
  return string.char(DELIVERED, flags) .. sub(record, 3, 21) .. counted .. sub(lease, 9, 14)
    .. moment .. nonce .. sub(record, at, finish - 1) .. decided .. sub(record, old_end, extras_end)
end

-- Add up counters, then write each once.
local function count(counts, field, by)
  counts[field] = (counts[field] or 0) + by
end

local function write_counts(key, counts)
  for field, by in pairs(counts) do
    if by ~= 0 then redis.call('HINCRBY', key, field, by) end
  end
end

local function end_token(tokens, grants, token)
  redis.call('HDEL', grants, token, token .. 'n', token .. 'r')
  redis.call('ZREM', tokens, token)
end

-- `number` messages of a token are settled or lost; the last one ends it.
local function close_grant(tokens, grants, token, number)
  if redis.call('HINCRBY', grants, token .. 'n', -number) <= 0 then
    end_token(tokens, grants, token)
  end
end

-- Forget settled messages past the time or the number, at most `budget`; how many were. Ids that
-- another partition has pointers of are noted in `unused`.
local function forget(settled, records, counters, index, unused, before, cap, budget)
  local over = redis.call('LLEN', settled) - cap
  local oldest = redis.call('LINDEX', settled, 0)
  if not oldest or (over <= 0 and struct.unpack('<I6', oldest) >= before) then return 0 end
  local entries = redis.call('LRANGE', settled, 0, budget - 1)
  local ids, moments = {}, {}
  for i = 1, #entries do
    local moment = struct.unpack('<I6', entries[i])
    if moment >= before and i > over then break end
    ids[i] = string.sub(entries[i], 7)
    moments[i] = moment
  end
  if #ids == 0 then return 0 end
  local found = get_many('HMGET', records, ids)
  local gone, counts, keyed, away = {}, {}, {}, {}
  local indexed = by_key(index)
  for i = 1, #ids do
    if found[i] then
      local h = read_head(found[i])
      if h.settled == moments[i] and h.state ~= SCHEDULED and h.state ~= DEAD then
        gone[#gone + 1] = ids[i]
        if h.flags >= AWAY then away[#away + 1] = ids[i] end
        keyed[#keyed + 1] = indexed and key_entry(found[i], ids[i]) or nil
        count(counts, tostring(h.state), -1)
        count(counts, 'g' .. h.generation, -1)
      end
    end
  end
  redis.call('LTRIM', settled, #ids, -1)
  if #gone > 0 then variadic('HDEL', records, gone) end
  if #keyed > 0 then variadic('ZREM', index, keyed) end
  if #away > 0 then variadic('RPUSH', unused, away) end
  write_counts(counters, counts)
  return #ids
end
