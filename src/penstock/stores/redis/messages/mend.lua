-- MEND: compare a route's turns in a partition with its records and repair them, one bounded step.
--
-- KEYS  a group: records, leases, line, turns, busy
-- ARGV  1 groups (msgpack): { first key }
--       2 route · 3 the structure to scan: 'line', 'busy' or 'records' · 4 cursor ('0' begins)
--       5 approximate number of entries to read
-- →     a group: next cursor ('0': that was all)
-- @include stores/redis/messages/turns.lua

local k = cmsgpack.unpack(ARGV[1])[1][1]
local records, leases, line, turns, busy =
  KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5]
local route = ARGV[2]
local subject = ARGV[3]
local cursor = ARGV[4]
local number = ARGV[5]

-- The record of the route's message, its head and its key; nil if it is not one of the route's.
local function read(id, record)
  record = record or redis.call('HGET', records, id)
  local h = record and read_head(record)
  if not h or h.state ~= SCHEDULED or route_of(record, h.at) ~= route then return nil end
  return h, key_of(record, id), redis.call('HEXISTS', leases, id) == 1
end

local function check_waiting(entry)
  local stop = string.find(entry, '\0', 1, true)
  local id = sub(entry, stop + 8)
  local h, key, leased = read(id)
  if not h or leased or line_entry(key, h, id) ~= entry then
    redis.call('ZREM', line, entry)
    redis.call('ZADD', turns, 'LT', 0, sub(entry, 1, stop - 1))
  end
end

local function check_busy(entry)
  local stop = string.find(entry, '\0', 1, true)
  local id = sub(entry, stop + 1)
  local h, key, leased = read(id)
  if not h or not leased or key .. '\0' .. id ~= entry then
    make_way(line, turns, busy, sub(entry, 1, stop - 1), id)
  end
end

local function check_record(id, record)
  local h, key, leased = read(id, record)
  if not h then return end
  if leased then
    redis.call('ZADD', busy, 0, key .. '\0' .. id)
  else
    line_up(line, turns, key, h, id)
  end
end

local found
if subject == 'records' then
  found = redis.call('HSCAN', records, cursor, 'COUNT', number)
  for i = 1, #found[2], 2 do check_record(found[2][i], found[2][i + 1]) end
else
  local check = subject == 'line' and check_waiting or check_busy
  found = redis.call('ZSCAN', subject == 'line' and line or busy, cursor, 'COUNT', number)
  for i = 1, #found[2], 2 do check(found[2][i]) end
end
return { found[1] }
