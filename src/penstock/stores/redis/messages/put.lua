-- PUT: keep messages whose ids are all new to their partition.
-- A copy of `penstock.model.lifecycle.put` for new ids.
--
-- KEYS  a group: generation, records, leases, counters, index by key, then the lanes, buckets and
--       indexes its plan points at
-- ARGV  1 groups (msgpack): { first key, first argument, generation, number of messages,
--         lengths of the ids, lengths of the records (of each, or one number for all),
--         lanes   = { { key, first, last, counter, turns, channel, news, earliest due } … },
--         buckets = { { key, first, last, counter, turns, index key, member, earliest due } … },
--         moment of the oldest reservation of its ids elsewhere or false }
--         (a lane without a channel: messages put dead, into the dead letters of their route;
--         a bucket without an index: messages put blocked, into the list of settled ids)
--         keys count from the group's first; `first` and `last` are messages of the group;
--         `turns` is the key of the route's line, before that of its turns, or false
--       a group's arguments, each many in one: its ids · its records · of each lane the due times,
--         15 digits · of each bucket the offsets, 4 bytes, or the moments of the settled, 6 bytes
-- →     a group: { 'kept' }, or nothing was written: { 'layout' } (another generation holds),
--       { 'late' } (a reservation is over) or { 'known', record or nil …, lease or nil … } in the
--       order of the ids
-- @include stores/redis/messages/turns.lua

local groups = cmsgpack.unpack(ARGV[1])
local RESERVED = 60000 -- milliseconds a reservation is good for; pointers.py waits for longer

-- Put so many pieces of a text into `into`, at first, first + step …
local function cut(text, number, lengths, into, first, step)
  local same, at, to = type(lengths) == 'number' and lengths, 1, first
  for i = 1, number do
    local length = same or lengths[i]
    into[to] = sub(text, at, at + length - 1)
    at, to = at + length, to + step
  end
end

local function keep(group)
  local k, a, generation, number, id_lengths, record_lengths, lanes, buckets, reserved =
    unpack(group)
  local records, leases, counters = KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  if tonumber(redis.call('GET', KEYS[k + 1]) or 0) ~= generation then return { 'layout' } end
  if reserved and server_time() > reserved + RESERVED then return { 'late' } end
  local ids, fields = {}, {}
  cut(ARGV[a + 1], number, id_lengths, ids, 1, 1)
  local known = get_many('HMGET', records, ids)
  for i = 1, number do
    if known[i] then return { 'known', known, get_many('HMGET', leases, ids) } end
    fields[2 * i - 1], fields[2 * i] = ids[i], false
  end
  cut(ARGV[a + 2], number, record_lengths, fields, 2, 2)
  variadic('HSET', records, fields)
  if by_key(KEYS[k + 5]) then
    local keyed = {}
    for i = 1, number do
      local entry = key_entry(fields[2 * i], ids[i])
      if entry then keyed[#keyed + 1], keyed[#keyed + 2] = 0, entry end
    end
    if #keyed > 0 then variadic('ZADD', KEYS[k + 5], keyed) end
  end
  local function keep_turns(turns, first, last)
    for m = first, last do
      local record = fields[2 * m]
      line_up(KEYS[k + turns], KEYS[k + turns + 1], key_of(record, ids[m]), read_head(record), ids[m])
    end
  end
  for i = 1, #lanes do
    local key, first, last, counter, turns, channel, news, earliest = unpack(lanes[i])
    local head = redis.call('ZRANGE', KEYS[k + key], 0, 0, 'WITHSCORES')
    local dues, scored, n = ARGV[a + 2 + i], {}, 0
    for m = first, last do
      scored[2 * n + 1], scored[2 * n + 2] = sub(dues, 15 * n + 1, 15 * n + 15), ids[m]
      n = n + 1
    end
    variadic('ZADD', KEYS[k + key], scored)
    redis.call('HINCRBY', counters, counter, n)
    if turns then keep_turns(turns, first, last) end
    if channel and (not head[2] or tonumber(earliest) < tonumber(head[2])) then
      redis.call('PUBLISH', channel, news)
    end
  end
  for i = 1, #buckets do
    local key, first, last, counter, turns, index, member, earliest = unpack(buckets[i])
    local begins, size, entries, n = ARGV[a + 2 + #lanes + i], index and 4 or 6, {}, 0
    for m = first, last do
      entries[n + 1] = sub(begins, size * n + 1, size * n + size) .. ids[m]
      n = n + 1
    end
    variadic('RPUSH', KEYS[k + key], entries)
    redis.call('HINCRBY', counters, counter, n)
    if turns then keep_turns(turns, first, last) end
    if index then redis.call('ZADD', KEYS[k + index], 'LT', earliest, member) end
  end
  redis.call('HINCRBY', counters, 'g' .. generation, number)
  return { 'kept' }
end

local answers = {}
for i = 1, #groups do answers[i] = keep(groups[i]) end
return answers
