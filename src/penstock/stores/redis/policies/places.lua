-- Shared by nothing but POLICY_SHARED: a counter that keys share, as it is kept.
--
--   sends    STRING  msgpack { times, counts, { until, places held until then … }, latest send,
--                    ids counted that are known, where the search for ids of no use goes on }
--   ids      HASH    id → until when it holds its place; negative: it was counted, and is remembered
--                    until then (8 bytes)
--   counted  LIST    ids that were counted, those of one call as one, the oldest first
--
-- The ids of a call are read together and written together.
-- @include redis_kit/common.lua
-- @include stores/redis/policies/common.lua

local NUMBER, ID = '>d', 16
local KNOWN, CURSOR = 5, 6
local MOST_ENDS = 512 -- moments at which places come free that are told apart
local USELESS = 64 -- ids of no use that may lie around; looked for so many at a time

local numbers_of = {}
local function number_of(packed)
  local number = numbers_of[packed]
  if not number then
    number = struct.unpack(NUMBER, packed)
    numbers_of[packed] = number
  end
  return number
end

-- The counter whose keys these are: sends, ids, counted.
local function counter_at(sends, held, counted, ids, now)
  local blob = redis.call('GET', sends)
  local c = blob and cmsgpack.unpack(blob) or new_counter()
  c.sends, c.ids, c.counted = sends, held, counted
  c.places, c.waiting = {}, 0 -- until → places held
  for i = 1, #c[HELD], 2 do c.places[c[HELD][i]] = c[HELD][i + 1] end
  c.values, c.changes = {}, {} -- id → packed moment, as it is and to be written (false: gone)
  c.sent_now, c.counted_now = {}, {} -- cap → sends to be written down, ids counted
  c.fresh = not c[KNOWN]
  for ends, number in pairs(c.places) do
    if ends > now then c.waiting = c.waiting + number end
  end
  local values = redis.call('HMGET', held, unpack(ids))
  for i = 1, #ids do
    if values[i] then c.values[ids[i]] = values[i] end
  end
  return c
end

-- Until when it holds a place (maybe no more), 0: it has none; and whether it was counted.
local function place_of(c, me, now)
  local value = c.values[me]
  if not value then return 0, false end
  local ends = number_of(value)
  return math.max(ends, 0), ends < -now
end

-- So many places less until then. Of places whose moments were thrown together the next ones go.
local function leave(c, ends, number, now)
  while ends and number > 0 do
    local held = c.places[ends] or 0
    local gone = math.min(held, number)
    if gone > 0 then c.places[ends] = gone < held and held - gone or nil end
    if ends <= now then return end
    c.waiting = c.waiting - gone
    number = number - gone
    if number > 0 then
      local next_
      for other in pairs(c.places) do
        if other > ends and (not next_ or other < next_) then next_ = other end
      end
      ends = next_
    end
  end
end

local function forget_hold(c, me, now)
  local ends = place_of(c, me, now)
  if ends == 0 then return end
  c.values[me], c.changes[me], c.changed = nil, false, true
  leave(c, ends, 1, now)
end

local function write_hold(c, me, ends, now)
  forget_hold(c, me, now)
  local packed = struct.pack(NUMBER, ends)
  c.values[me], c.changes[me], c.changed = packed, packed, true
  c.places[ends] = (c.places[ends] or 0) + 1
  if ends > now then c.waiting = c.waiting + 1 end
end

-- Count each of these that was not counted before, once.
local function count_sends(c, s, ids, first, last, now)
  local values, changes, counted, left = c.values, c.changes, c.counted_now, {}
  local packed, before = struct.pack(NUMBER, -(now + REMEMBER)), #c.counted_now
  for i = first, last do
    local me = ids[i]
    local value = values[me]
    local ends = value and (numbers_of[value] or number_of(value)) or 0
    -- A place that was over when others were written is forgotten: a shadow had deferred it.
    if ends >= -now and (s[UNSEEN] == 0 or c.places[ends] or ends < 0) then
      if ends > 0 then left[ends] = (left[ends] or 0) + 1 end
      values[me], changes[me] = packed, packed
      counted[#counted + 1] = me
    end
  end
  if #counted == before then return end
  for ends, number in pairs(left) do leave(c, ends, number, now) end
  c.sent_now[s] = (c.sent_now[s] or 0) + #counted - before
  c.changed = true
end

local function seed(c)
  if c.fresh then redis.call('HSET', c.ids, SEED, SEEDED) end
  c.fresh = false
end

-- A place for each: none of these is known here, so that they are simply written down.
local function hold_all(c, ids, first, last, ends)
  local packed, fields = struct.pack(NUMBER, ends), {}
  for i = first, last do
    fields[#fields + 1] = ids[i]
    fields[#fields + 1] = packed
  end
  seed(c)
  local added = 0
  for from = 1, #fields, CHUNK do
    local to = math.min(from + CHUNK - 1, #fields)
    added = added + redis.call('HSET', c.ids, unpack(fields, from, to)) -- one may be there twice
  end
  c.places[ends] = (c.places[ends] or 0) + added
  c.changed = true
end

local function write_ids(c)
  seed(c)
  local fields, gone, f, g = {}, {}, 0, 0
  for id, value in pairs(c.changes) do
    if value then
      fields[f + 1], fields[f + 2] = id, value
      f = f + 2
    else
      g = g + 1
      gone[g] = id
    end
  end
  if g > 0 then variadic('HDEL', c.ids, gone) end
  if f > 0 then variadic('HSET', c.ids, fields) end
end

-- The oldest of the ids that were counted, when there are too many.
local function forget_counted(c)
  local known = (c[KNOWN] or 0) + #c.counted_now
  if #c.counted_now > 0 then redis.call('RPUSH', c.counted, table.concat(c.counted_now)) end
  while known >= 2 * REMEMBERED do
    local oldest = redis.call('LINDEX', c.counted, 0)
    if not oldest or known - #oldest / ID < REMEMBERED then break end
    local gone = {}
    for i = 1, #oldest, ID do gone[#gone + 1] = sub(oldest, i, i + ID - 1) end
    variadic('HDEL', c.ids, gone)
    redis.call('LPOP', c.counted)
    known = known - #gone
  end
  return known
end

-- Places that were never concluded are over, but their ids are still stored.
local function sweep(c, known, now)
  if redis.call('HLEN', c.ids) <= c.waiting + known + USELESS then return c[CURSOR] or '0' end
  local found = redis.call('HSCAN', c.ids, c[CURSOR] or '0', 'COUNT', USELESS)
  local gone = {}
  for i = 1, #found[2], 2 do
    local id = found[2][i]
    if id ~= SEED and math.abs(number_of(found[2][i + 1])) <= now then gone[#gone + 1] = id end
  end
  if #gone > 0 then variadic('HDEL', c.ids, gone) end
  return found[1]
end

-- { until, places … } of those that are held; when there are too many moments, every second one
-- is merged into the next: a place ends a little later, never earlier.
local function packed_places(c, now)
  local moments, packed = {}, {}
  for ends in pairs(c.places) do
    if ends > now then moments[#moments + 1] = ends end
  end
  local every = #moments > MOST_ENDS and 2 or 1
  if every == 2 then table.sort(moments) end
  for i = #moments, 1, -every do
    local number = c.places[moments[i]]
    if every == 2 and moments[i - 1] then number = number + c.places[moments[i - 1]] end
    packed[#packed + 1] = moments[i]
    packed[#packed + 1] = number
  end
  return packed
end

local function write_counter(c, now, ttl)
  if not c.changed then return end
  for s, number in pairs(c.sent_now) do add_sends(c, s, now, number) end
  write_ids(c)
  local known = forget_counted(c)
  local cursor = sweep(c, known, now)
  local kept = { c[TIMES], c[COUNTS], packed_places(c, now), c[LAST], known, cursor }
  redis.call('SET', c.sends, cmsgpack.pack(kept), 'PX', ttl)
  redis.call('PEXPIRE', c.ids, ttl)
  redis.call('PEXPIRE', c.counted, ttl)
end
