-- Shared by the scripts on accounts: the counters of one key as they
-- are kept.
--
-- An account: '\3' · when it is of no use any more (3 bytes, in steps of 512 s) · the caps of its
-- tail (length in 2 bytes, then msgpack { counter, 1 if it has a window … }) · the tail.
-- One that has had more: '\4' · when it is of no use · at most so many sends and places has any of
-- its counters (2 bytes; 65535: more or unknown) · where the tail begins (4 bytes) · the caps of its
-- tail · msgpack { version, { counter → counter } } · the tail.
--
-- A counter in there is { times, counts, held, latest send } with two strings that need not be
-- taken apart to be added to: times, 8 bytes each, and held, { id, until } of 16 and 8 bytes each.
--
-- The tail is what few messages of a key need, and can be added to as it is: entries like those of
-- held, each of a message that has its place in every one of the tail's caps, or was counted in
-- them, then `until` is negative as it is in held, and says when.
-- @include redis_kit/common.lua
-- @include stores/redis/policies/common.lua

local NUMBER = '>d'
local ID, ENTRY = 16, 24
local SHORT, FULL = 3, 4
local SHORT_HEAD, FULL_HEAD = 4, 10
local UNSURE = 65535
local STEP = 512000
local SWEPT, ROUNDS = 16, 32
local find, unpack_struct, pack_struct = string.find, struct.unpack, struct.pack

local function strung(numbers)
  local packed = {}
  for i = 1, #numbers do packed[i] = pack_struct(NUMBER, numbers[i]) end
  return table.concat(packed)
end

local function times_of(kept)
  local times, packed = {}, kept[TIMES]
  for i = 1, #packed, 8 do times[#times + 1] = unpack_struct(NUMBER, packed, i) end
  return times
end

-- The counter with its times taken apart.
local function opened(kept) return { times_of(kept), kept[COUNTS], {}, kept[LAST] } end

local function close(kept, c)
  kept[TIMES], kept[COUNTS], kept[LAST] = strung(c[TIMES]), c[COUNTS], c[LAST]
end

-- (where the entry of `me` begins or nil, until when it holds: 0 for none).
local function look_up(held, me)
  local place = string.find(held, me, 1, true)
  while place and place % ENTRY ~= 1 do place = string.find(held, me, place + 1, true) end
  if not place then return nil, 0 end
  return place, (unpack_struct(NUMBER, held, place + ID))
end

-- The held with the entry at `place` (nil: at the end) saying `ends`, packed.
local function written(held, place, me, ends)
  if not place then return held .. me .. ends end
  return string.sub(held, 1, place + ID - 1) .. ends .. string.sub(held, place + ENTRY)
end

local function without(held, place)
  return string.sub(held, 1, place - 1) .. string.sub(held, place + ENTRY)
end

-- One send, at a moment that is the latest as a rule.
local function add_send(c, s, moment)
  if s[FLOOR] and s[EXACT] == 1 and s[GRAIN] >= c[LAST] and not c[COUNTS][1] then
    c[TIMES] = c[TIMES] .. pack_struct(NUMBER, s[GRAIN])
    c[LAST] = math.max(c[LAST], moment)
  else
    local whole = opened(c)
    add_sends(whole, s, moment, 1)
    close(c, whole)
  end
end

-- The entries of the tail as counters; counted ids are known for a while.
local function fold(counters, caps, tail, now)
  local held, sends = {}, {}
  for place = 1, #tail, ENTRY do
    local ends = unpack_struct(NUMBER, tail, place + ID)
    if ends < 0 then
      sends[#sends + 1] = -ends - REMEMBER
    end
    if ends > 0 or -ends > now then held[#held + 1] = sub(tail, place, place + ENTRY - 1) end
  end
  held = table.concat(held)
  for i = 1, #caps, 2 do
    local c = counters[caps[i]]
    if not c then
      c = { '', {}, '', 0 }
      counters[caps[i]] = c
    end
    c[HELD] = c[HELD] .. held
    for j = 1, #sends do
      local s = { [FLOOR] = caps[i + 1] == 1, [GRAIN] = sends[j], [EXACT] = 1 }
      add_send(c, s, sends[j])
    end
  end
end

-- { version (0: unknown), { counter → counter } } of a key's stored account, if there is one.
local function unpacked(blob, now)
  if not blob then return { 0, {} } end
  local kind = byte(blob)
  local head = kind == SHORT and SHORT_HEAD or FULL_HEAD
  local last = head + 2 + unpack_struct('>I2', blob, head + 1) -- of the caps
  local account, begins = { 0, {} }, last
  if kind == FULL then
    begins = unpack_struct('>I4', blob, 7)
    account = cmsgpack.unpack(sub(blob, last + 1, begins))
  end
  if begins < #blob then
    fold(account[2], cmsgpack.unpack(sub(blob, head + 3, last)), sub(blob, begins + 1), now)
  end
  return account
end

-- Drop accounts that are of no use any more: one call in sixteen (by the id of its first message)
-- looks through as many accounts as it has messages, from where the last one stopped (written behind
-- the value of SEED), and goes on while an eighth of them is of no use. It may drop twice what comes
-- in between, so keys that are written to only once do not fill the server.
local function sweep(accounts, ids, now)
  local chance = byte(ids, ID)
  if not chance or chance % SWEPT > 0 then return end
  local seed = redis.call('HGET', accounts, SEED)
  if not seed then return end
  local cursor = #seed > #SEEDED and sub(seed, #SEEDED + 1) or '0'
  for _ = 1, ROUNDS do
    local answer = redis.call('HSCAN', accounts, cursor, 'COUNT', #ids / ID)
    local found, gone = answer[2], {}
    for i = 1, #found, 2 do
      if found[i] ~= SEED and unpack_struct('>I3', found[i + 1], 2) * STEP < now then
        gone[#gone + 1] = found[i]
      end
    end
    if #gone > 0 then variadic('HDEL', accounts, gone) end
    cursor = answer[1]
    if cursor == '0' or #gone < #found / 16 then break end
  end
  redis.call('HSET', accounts, SEED, SEEDED .. cursor)
end

-- The stored account of each key, in the order of the keys.
local function read(accounts, first, number)
  return get_many('HMGET', accounts, ARGV, first, first + number - 1)
end

-- `fields`: key and account, one after the other.
local function write(accounts, fields, ttl)
  if #fields == 0 then return end
  local left = redis.call('PTTL', accounts)
  if left == -2 then redis.call('HSET', accounts, SEED, SEEDED) end
  variadic('HSET', accounts, fields)
  if left < tonumber(ttl) then redis.call('PEXPIRE', accounts, ttl) end
end
