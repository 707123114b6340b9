-- Shared by the scripts that keep turns (line.lua) beside records: a record's part in them.
-- @include stores/redis/messages/record.lua
-- @include stores/redis/messages/line.lua

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

-- It was leased before: on an ordered route it goes before the rest of its key.
local function begun(h)
  return h.attempt > h.floor or bit.band(h.flags, DECIDED) ~= 0
end

local function line_entry(key, h, id)
  return key .. (begun(h) and '\0\0' or '\0\1') .. struct.pack('>I6', h.due) .. id
end

-- The message waits from now on.
local function line_up(line, turns, key, h, id)
  redis.call('ZADD', line, 0, line_entry(key, h, id))
  redis.call('ZADD', turns, 'LT', h.due, key)
end
