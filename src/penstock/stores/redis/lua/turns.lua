-- Shared by the scripts that keep turns: routes that promise something per key (turns.py) have in
-- each partition, beside what every route has,
--   line   ZSET of all that wait, near or far, scored 0:
--          key \0 (\0 begun, \1 not) due (6 bytes, big-endian) id — so a key's line is a range
--   turns  ZSET key → due of its next message: never later than the truth (then nobody would look),
--          sometimes earlier (a claim looks and mends it); not there: nothing, or its number is out
--   busy   ZSET of what is leased, scored 0: key \0 id

-- An id as its caller wrote it (records.py: pack_id).
local function text_of(id)
  if #id ~= 16 then return (string.gsub(id, '%z+$', '')) end
  local hex = string.gsub(id, '.', function(c) return string.format('%02x', byte(c)) end)
  return sub(hex, 1, 8) .. '-' .. sub(hex, 9, 12) .. '-' .. sub(hex, 13, 16) .. '-'
    .. sub(hex, 17, 20) .. '-' .. sub(hex, 21)
end

local function key_of(record, id)
  local entry = key_entry(record, id)
  return entry and sub(entry, 1, -2 - #id) or text_of(id)
end

-- Something came of it before: in an ordered route it goes before the rest of its key.
local function begun(h)
  return h.attempt > h.floor or bit.band(h.flags, DECIDED) ~= 0
end

local function line_entry(key, h, id)
  return key .. (begun(h) and '\0\0' or '\0\1') .. struct.pack('>I6', h.due) .. id
end

local function due_of(entry, key)
  return (struct.unpack('>I6', entry, #key + 3))
end

-- The first of a key's line, those begun or those not; at most `number`.
local function line_of(line, key, was_begun, number)
  local from = key .. (was_begun and '\0\0' or '\0\1')
  local to = key .. (was_begun and '\0\1' or '\0\2')
  return redis.call('ZRANGEBYLEX', line, '[' .. from, '(' .. to, 'LIMIT', 0, number)
end

-- The message waits from now on.
local function line_up(line, turns, key, h, id)
  redis.call('ZADD', line, 0, line_entry(key, h, id))
  redis.call('ZADD', turns, 'LT', h.due, key)
end

-- The message is no longer leased: the next of its key may have its turn.
local function make_way(line, turns, busy, key, id)
  redis.call('ZREM', busy, key .. '\0' .. id)
  for _, was_begun in ipairs({ true, false }) do
    local first = line_of(line, key, was_begun, 1)[1]
    if first then redis.call('ZADD', turns, 'LT', due_of(first, key), key) end
  end
end
