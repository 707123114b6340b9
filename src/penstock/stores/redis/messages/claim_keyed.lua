-- CLAIM_KEYED: lease due messages of keys with a turn, by the due of each key's next message.
--
-- Reads turns, never the backlog of a busy key. Repeating a round with the same token returns
-- the same messages again. Where the numbers of waiting and leased messages differ from the
-- counters (a process wrote without knowing that the route keeps turns), nothing is leased.
-- A copy of `penstock.model.lifecycle.lease`.
--
-- KEYS  a group: generation, records, leases, tokens, grants, counters, index, line, turns, busy,
--       then the lanes of priority 9 … 0
-- ARGV  1 groups (msgpack): { first key, tolerated numbers missing in line, missing in busy }
--       2 route · 3 limit · 4 now · 5 lease (ms) · 6 token (8 bytes)
--       7 … 16 the counters of the lanes · 17 the field of the pause · 18 round, from 1
--       19 bytes of records to give at most · 20 messages to give in any case: 1 or 0
--       21 of one key in flight at most · 22 ordered: 1 · 23 only look: 1
-- →     a group: { generation or nil, the lease of all, { id, record … }, due of the first turn left or
--       nil, { index member, earliest due … } of at most 4 buckets, 1 if the bytes ended it,
--       { missing in line, missing in busy } or nil, { due of the turn of each that could be taken } if only looked }
-- @include stores/redis/messages/record.lua
-- @include stores/redis/messages/turns.lua
-- @include stores/redis/messages/grant.lua

local groups = cmsgpack.unpack(ARGV[1])
local route = ARGV[2]
local limit = tonumber(ARGV[3])
local now = clamped(tonumber(ARGV[4]))
local until_ = now + tonumber(ARGV[5])
local token = ARGV[6]
local lease = struct.pack('<c8I6B', token, now, 0)
local round = tonumber(ARGV[18])
local max_bytes = tonumber(ARGV[19])
local at_least = tonumber(ARGV[20])
local asked = { now = now, limit = limit, in_flight = tonumber(ARGV[21]), ordered = ARGV[22] == '1' }
local looks = ARGV[23] == '1'

-- Waiting and leased messages by the counters, less those that turns have.
local function missing(s)
  local fields = redis.call('HMGET', KEYS[s.k + 6], 'l' .. route, unpack(ARGV, 7, 17))
  s.paused = fields[12]
  local waiting = 0
  for lane = 2, 11 do waiting = waiting + tonumber(fields[lane] or 0) end
  return waiting - redis.call('ZCARD', s.line),
    tonumber(fields[1] or 0) - redis.call('ZCARD', s.busy)
end

local states = {}
local left, given, bytes, stopped = limit, 0, 0, 0
for i = 1, #groups do
  local k, lost_of_line, lost_of_busy = unpack(groups[i])
  local s = { k = k, ids = {}, out = {}, dues = {}, moved = {}, open = false, lease = lease,
    missing = false, line = KEYS[k + 8], turns = KEYS[k + 9], busy = KEYS[k + 10] }
  s.generation = redis.call('GET', KEYS[k + 1])
  states[i] = s
  local again = granted_before(s, token, round, until_)
  if again then
    left, given = left - again, given + again
  elseif s.generation then
    local of_line, of_busy = missing(s)
    if of_line ~= lost_of_line or of_busy ~= lost_of_busy then
      s.missing = { of_line, of_busy }
    else
      s.open = not s.paused
    end
  end
end

local function take(s, key, entry)
  local id = sub(entry, #key + 9)
  local record = redis.call('HGET', KEYS[s.k + 2], id)
  if record and bytes + #record > max_bytes and given >= at_least then
    stopped = 1
    return false
  end
  redis.call('ZREM', s.line, entry)
  if not record or redis.call('HEXISTS', KEYS[s.k + 3], id) == 1 then return false end
  local h = read_head(record)
  if h.state ~= SCHEDULED or h.due ~= due_of(entry, key) or route_of(record, h.at) ~= route
    or key_of(record, id) ~= key then return false end
  local lane = 10 - h.priority
  redis.call('ZREM', KEYS[s.k + 10 + lane], id)
  redis.call('ZADD', s.busy, 0, key .. '\0' .. id)
  count(s.moved, ARGV[6 + lane], -1)
  s.ids[#s.ids + 1] = id
  s.out[#s.out + 1] = id
  s.out[#s.out + 1] = record
  bytes, given = bytes + #record, given + 1
  return true
end

local function take_due(s, key, heads, most)
  local number = 0
  for i = 1, #heads do
    if number >= most or due_of(heads[i], key) > now then break end
    if looks then
      s.dues[#s.dues + 1] = string.format('%.0f', due_of(heads[1], key))
      number = number + 1
    elseif take(s, key, heads[i]) then
      number = number + 1
    end
    if stopped == 1 then return most end -- nothing more of anybody
  end
  return number
end

asked.limit = left
serve(states, asked, looks, take_due)

local answer = {}
for i = 1, #states do
  local s = states[i]
  grant(s, route, token, lease, until_, round)
  write_counts(KEYS[s.k + 6], s.moved)
  local head = s.open and redis.call('ZRANGE', s.turns, 0, 0, 'WITHSCORES')[2] or false
  local far = redis.call('ZRANGE', KEYS[s.k + 7], 0, 3, 'WITHSCORES')
  answer[i] = { s.generation, s.lease, s.out, head, far, stopped, s.missing, s.dues }
end
return answer
