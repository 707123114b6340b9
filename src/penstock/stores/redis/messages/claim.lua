-- CLAIM: lease due messages of a route, 9 → 0 and then by due, fairly over the partitions.
--
-- Repeating a round of a claim with the same token returns the same messages again; another
-- round adds to the grant.
-- A copy of `penstock.model.lifecycle.lease`.
--
-- KEYS  a group: generation, records, leases, tokens, grants, counters, index, then the lanes of
--       priority 9 … 0
-- ARGV  1 groups (msgpack): { first key } in the order to be served
--       2 route · 3 limit · 4 now · 5 lease (ms) · 6 token (8 bytes)
--       7 … 16 the counters of the lanes · 17 the field of the pause · 18 round, from 1
--       19 bytes of records to give at most · 20 messages to give in any case: 1 or 0
-- →     a group: { generation or nil, the lease of all, { id, record … }, due of its first lane entry left
--       or nil, { index member, earliest due … } of at most 4 buckets, nearest first,
--       1 if the bytes ended it }
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
local EXACT = 1024 -- heads compared at most to give exact order; beyond, partitions share equally
local FEW = 4 -- records read at first, then twice as many each time: large ones are not read in vain

local states = {}
local left, given, bytes, stopped = limit, 0, 0, 0
for i = 1, #groups do
  local k = groups[i][1]
  local s = { k = k, ids = {}, out = {}, open = false, lease = lease }
  s.generation = redis.call('GET', KEYS[k + 1])
  states[i] = s
  local again = granted_before(s, token, round, until_)
  if again then
    left, given = left - again, given + again
  elseif s.generation then
    local fields = redis.call('HMGET', KEYS[k + 6], unpack(ARGV, 7, 17))
    s.open = not fields[11]
    s.counts = fields
  end
end

-- How many to take of each lane of one priority: all that is due if there is room for it.
local function shares(lane)
  local due, total, active = {}, 0, 0
  for i = 1, #states do
    local s = states[i]
    due[i] = 0
    if s.open and tonumber(s.counts[lane] or 0) > 0 then
      due[i] = redis.call('ZCOUNT', KEYS[s.k + 7 + lane], '-inf', now)
      total = total + due[i]
      if due[i] > 0 then active = active + 1 end
    end
  end
  if total <= left then return due, total end
  local taken = {}
  if active * left <= EXACT then
    local heads = {}
    for i = 1, #states do
      taken[i] = 0
      if due[i] > 0 then
        local first = redis.call('ZRANGE', KEYS[states[i].k + 7 + lane], 0,
          math.min(due[i], left) - 1, 'WITHSCORES')
        for j = 1, #first, 2 do heads[#heads + 1] = { tonumber(first[j + 1]), first[j], i } end
      end
    end
    table.sort(heads, function(one, other)
      if one[1] ~= other[1] then return one[1] < other[1] end
      return one[2] < other[2]
    end)
    for j = 1, left do taken[heads[j][3]] = taken[heads[j][3]] + 1 end
    return taken, left
  end
  local rest = left
  for i = 1, #states do taken[i] = 0 end
  while rest > 0 do
    local share = math.max(1, math.floor(rest / active))
    for i = 1, #states do
      local more = math.min(share, due[i] - taken[i], rest)
      if more > 0 then
        taken[i] = taken[i] + more
        rest = rest - more
        if taken[i] == due[i] then active = active - 1 end
      end
    end
  end
  return taken, left
end

-- Into `s`: the first entries of its lane and their records. False: that is more than `room` bytes.
local function read(s, lane, number, room)
  s.first = redis.call('ZRANGE', KEYS[s.k + 7 + lane], 0, number - 1)
  s.records, s.read = {}, 0
  while s.read < #s.first do
    local last = math.min(2 * s.read + FEW, #s.first)
    local some = get_many('HMGET', KEYS[s.k + 2], s.first, s.read + 1, last)
    for j = 1, #some do
      s.records[s.read + j] = some[j]
      if some[j] then bytes = bytes + #some[j] end
    end
    s.read = last
    if bytes > room then return false end
  end
  return true
end

local function read_all(lane, taken)
  for i = 1, #states do
    states[i].read = 0
    if taken[i] > 0 and not read(states[i], lane, taken[i], max_bytes) then return false end
  end
  return true
end

-- How many of these the bytes allow, over all partitions in the order of due; and their bytes.
local function fitting(lane, taken)
  local heads, fits, total, size = {}, {}, 0, 0
  for i = 1, #states do
    fits[i] = 0
    if taken[i] > 0 then
      local first = redis.call('ZRANGE', KEYS[states[i].k + 7 + lane], 0, taken[i] - 1, 'WITHSCORES')
      for j = 1, #first, 2 do heads[#heads + 1] = { tonumber(first[j + 1]), first[j], i } end
    end
  end
  table.sort(heads, function(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] end
    return one[2] < other[2]
  end)
  for j = 1, #heads do
    local s = states[heads[j][3]]
    local more = redis.call('HSTRLEN', KEYS[s.k + 2], heads[j][2])
    if size + more > max_bytes - bytes and given + total >= at_least then break end
    size, total, fits[heads[j][3]] = size + more, total + 1, fits[heads[j][3]] + 1
  end
  return fits, total, size
end

-- Only as many as the bytes allow, if all are too large.
local function read_fitting(lane, taken, before)
  bytes = before
  local fits, total, size = fitting(lane, taken)
  for i = 1, #states do
    if states[i].read < fits[i] then read(states[i], lane, fits[i], math.huge) end
  end
  bytes = before + size
  return fits, total
end

local function take(s, lane, number)
  local ids, found = s.first, s.records
  redis.call('ZREMRANGEBYRANK', KEYS[s.k + 7 + lane], 0, number - 1)
  local taken, out, n = s.ids, s.out, #s.ids
  for j = 1, number do
    if found[j] then
      n = n + 1
      taken[n] = ids[j]
      out[2 * n - 1], out[2 * n] = ids[j], found[j]
    end
  end
  redis.call('HINCRBY', KEYS[s.k + 6], ARGV[6 + lane], -number)
  s.counts[lane] = tonumber(s.counts[lane]) - number
end

for lane = 1, 10 do
  if left <= 0 then break end
  local taken, total = shares(lane)
  local before = bytes
  if not read_all(lane, taken) then
    taken, total = read_fitting(lane, taken, before)
    stopped = 1
  end
  for i = 1, #states do
    if taken[i] > 0 then take(states[i], lane, taken[i]) end
  end
  left, given = left - total, given + total
  if stopped == 1 then break end
end

-- Write down who holds what.
for i = 1, #states do grant(states[i], route, token, lease, until_, round) end

local answer = {}
for i = 1, #states do
  local s = states[i]
  local head = false
  if s.open then
    for lane = 1, 10 do
      if tonumber(s.counts[lane] or 0) > 0 then
        local first = redis.call('ZRANGE', KEYS[s.k + 7 + lane], 0, 0, 'WITHSCORES')[2]
        if first and (not head or tonumber(first) < tonumber(head)) then head = first end
      end
    end
  end
  local far = redis.call('ZRANGE', KEYS[s.k + 7], 0, 3, 'WITHSCORES')
  answer[i] = { s.generation, s.lease, s.out, head, far, stopped }
end
return answer
