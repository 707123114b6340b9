-- Shared by the scripts of waiting rooms. Copies of `penstock.model.room_admission`, held equal to it by
-- tests/rooms/test_redis_rooms_machine.py.
--
-- A room's keys, in this order (all with the room's hash tag in a cluster):
--   1 room      HASH   our record: settings, state, epoch, counters
--   2 slots     STRING slots in use; the only truth, other programs may change it
--   3 waiting   ZSET   the default lane: user by epoch seconds
--   4-6 lanes   ZSET   the other lanes
--   7 records   HASH   user → JSON {instanceId, joinedAt, place} while waiting; others write no
--                      place, which is the score in millionths
--   8 users     HASH   user → lane while waiting
--   9 tickets   HASH   user → ticket (packed) once promoted or ended
--  10 seen      ZSET   waiters of ours by their last sign of life (ms); others are not in it
--  11 held      ZSET   tickets that hold a slot, by the moment they lose it (ms, or +inf)
--  12 gone      ZSET   tickets to forget, by when (ms)
--  13 unrecorded HASH  user → moment (ms) and score of members found without a record
--  14 late      ZSET   users who went without a record, by when it is no longer awaited (ms)
--  15 entry     STREAM promotions
-- A ticket: { state A E L X R, lane, number, joined, promoted, until, entered, pass, instance,
--             1 if the slot is ours to give back }; -1: none. Packed by msgpack; a fresh
-- admission as the text '!' lane, promoted, until, ours, pass, score if the record has no place,
-- record, with NULs between: it costs least, and few ask for it before it changes.
-- @include redis_kit/common.lua

local ROOM, SLOTS, WAITING, RECORDS, USERS, TICKETS, SEEN, HELD, GONE, UNRECORDED, LATE, ENTRY =
  1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 14, 15
local KEYS_EACH = 15
local STATE, LANE, NUMBER, JOINED, PROMOTED, UNTIL, ENTERED, PASS, INSTANCE, OURS =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local DEFAULT = 'default'
local ATTEND_MS, OUTAGE_MS, WINDOW_MS, BURST_MS, STRIDE = 5000, 15000, 60000, 100, 1000000
local KEEP_ENDED, KEEP_OUTSIDE = 600000, 3600000

local call = redis.call

-- A whole number as text, cheaper than Redis's own conversion.
local function whole(number) return string.format('%d', number) end

local function known(value)
  if value == nil or value == cjson.null then return nil end
  return value
end

-- Many rooms of one call have the same settings, and reading them is dear. What a room's table does
-- not have itself it has from these.
local settings_read = {}
local function read_settings(raw)
  if not settings_read[raw] then
    local s = cjson.decode(raw)
    local rate = known(s.admit_rate)
    local settings = {
      raw = raw, capacity = s.capacity, rate = rate and rate.count, per = rate and rate.per,
      claim_ttl = known(s.claim_ttl), session_ttl = known(s.session_ttl),
      wait_grace = known(s.wait_grace), expire_outside = s.expire_outside, weights = s.lanes,
      lottery = s.lottery, seed = s.seed, opens_at = known(s.opens_at),
    }
    settings.__index = settings
    settings_read[raw] = settings
  end
  return settings_read[raw]
end

local NO_LANES = {}

-- The room at KEYS[b + 1 …], or nil. `default`: the settings of rooms never PUT; with ''
-- there is no such room. Rarely used fields are read where they are needed.
local function load_room(b, now, default)
  local f = call('HMGET', KEYS[b + ROOM], 'settings', 'state', 'epoch', 'attended', 'floor',
    'lanes', 'flow_since', 'flow_count', 'flow_before', 'A', 'promoted')
  if not f[1] and default == '' then return nil end
  if not f[3] then
    if call('EXISTS', KEYS[b + WAITING]) == 0 then return nil end
    call('HSET', KEYS[b + ROOM], 'epoch', 1, 'state', 'open', 'attended', now)
    f[2], f[3], f[4] = 'open', '1', now
  end
  local slots = tonumber(call('GET', KEYS[b + SLOTS]) or 0) or 0
  local r = {
    b = b, stored_state = f[2], state = f[2], epoch = f[3], attended = tonumber(f[4] or 0),
    floor = tonumber(f[5] or 0), index = f[6] and cjson.decode(f[6]) or NO_LANES,
    flow_since = f[7] or 0, flow_count = f[8] or 0, flow_before = f[9] or 0,
    admitted = f[10] or 0, promoted = f[11] or 0, slots_read = slots, slots = math.max(0, slots),
    changes = {},
  }
  setmetatable(r, read_settings(f[1] or default))
  if r.state == 'scheduled' and r.opens_at and r.opens_at <= now then r.state = 'open' end
  return r
end

local function save_slots(r)
  if r.slots ~= r.slots_read then
    call('INCRBY', KEYS[r.b + SLOTS], whole(r.slots - r.slots_read))
    r.slots_read = r.slots
  end
end

-- A field of the room's record that save_changes will write, together with the others.
local function change(r, field, value)
  local changes = r.changes
  local n = #changes
  changes[n + 1], changes[n + 2] = field, value
end

local function save_changes(r)
  if r.changes[1] then call('HSET', KEYS[r.b + ROOM], unpack(r.changes)) end
end

local function lane_key(r, lane) return KEYS[r.b + WAITING + (r.index[lane] or 0)] end

-- People waiting: by lane, and all.
local function waiting_of(r)
  local by, all = { [DEFAULT] = call('ZCARD', KEYS[r.b + WAITING]) }, 0
  for lane, i in pairs(r.index) do by[lane] = call('ZCARD', KEYS[r.b + WAITING + i]) end
  for _, n in pairs(by) do all = all + n end
  return by, all
end

local function outlook(r)
  local by = waiting_of(r)
  local flat = {}
  for lane, n in pairs(by) do
    flat[#flat + 1] = lane
    flat[#flat + 1] = n
  end
  return { r.raw, r.state, r.epoch, r.slots, flat, tonumber(r.flow_since), tonumber(r.flow_count),
    tonumber(r.flow_before), r.stored_state }
end

local function number_of(score) return math.floor(tonumber(score) * 1000000 + 0.5) end

-- Of a record another program may have written: instance, moment of joining in ms, place; or nil.
local function read_record(record)
  if not record then return 'unknown', nil end
  local fine, value = pcall(cjson.decode, record)
  if not fine or type(value) ~= 'table' then return 'unknown', nil end
  local joined = tonumber(known(value.joinedAt))
  if joined and joined < 100000000000 then joined = math.floor(joined * 1000 + 0.5) end
  return tostring(known(value.instanceId) or 'unknown'), joined, tonumber(known(value.place))
end

-- The instance, as every promotion needs it, and whether the record is one of ours, which knows its
-- place. Of ours without a decoder; most begin like the one before.
local RECORD_HEAD, RECORD_JOINED, RECORD_PLACE = '{"instanceId":"', '","joinedAt":', ',"place":'
local last_head, last_length, last_instance = '', -1, nil
local function instance_of(record)
  if not record then return 'unknown', false end
  if string.sub(record, 1, last_length) ~= last_head then
    local ends = string.find(record, RECORD_JOINED, 16, true)
    local instance = ends and string.sub(record, 16, ends - 1)
    local plain = ends and string.sub(record, 1, 15) == RECORD_HEAD
    if not plain or string.find(instance, '["\\]') then
      local foreign, _, place = read_record(record)
      return foreign, place ~= nil
    end
    last_head, last_length, last_instance = string.sub(record, 1, ends + 12), ends + 12, instance
  end
  if string.find(record, RECORD_PLACE, last_length + 1, true) then return last_instance, true end
  local instance, _, place = read_record(record)
  return instance, place ~= nil
end

local function unpack_ticket(packed)
  if string.byte(packed) ~= 33 then return cmsgpack.unpack(packed) end
  local lane, promoted, until_, ours, pass, score, record = string.match(packed,
    '^!(%Z*)%z(%Z*)%z(%Z*)%z(%Z*)%z(%Z*)%z(%Z*)%z(.*)$')
  local instance, joined, number = read_record(record ~= '' and record)
  if score ~= '' then number = number_of(score) end
  return { 'A', lane, number, joined or math.floor(number / 1000), tonumber(promoted),
    tonumber(until_), -1, pass, instance, tonumber(ours) }
end

-- Where a user waits: lane, score; or nil.
local function find_waiting(r, user)
  local lane = call('HGET', KEYS[r.b + USERS], user)
  if lane and r.index[lane] then
    local score = call('ZSCORE', lane_key(r, lane), user)
    if score then return lane, score end
  end
  local score = call('ZSCORE', KEYS[r.b + WAITING], user)
  if score then return DEFAULT, score end
  return nil
end

local function waiting_reply(r, user, lane, score)
  local instance, joined = read_record(call('HGET', KEYS[r.b + RECORDS], user))
  local number = number_of(score)
  return { 'W', lane, number, joined or math.floor(number / 1000), -1, -1, -1, '', instance, 1,
    call('ZRANK', lane_key(r, lane), user),
    call('ZSCORE', KEYS[r.b + SEEN], user) or -1 }
end

-- The user's ticket as a reply, or false.
local function ticket_reply(r, user)
  local lane, score = find_waiting(r, user)
  if lane then return waiting_reply(r, user, lane, score) end
  local packed = call('HGET', KEYS[r.b + TICKETS], user)
  return packed and unpack_ticket(packed) or false
end

-- A waiter gave a sign of life. One that another program put here is ours from now on.
local function saw(r, user, now)
  local before = call('ZSCORE', KEYS[r.b + SEEN], user)
  if not before then call('HINCRBY', KEYS[r.b + ROOM], 'joined', 1) end
  if not before or tonumber(before) < now then
    call('ZADD', KEYS[r.b + SEEN], now, user)
  end
end

-- Tickets that end in this call, written together by save_ended.
local function ending(r, now)
  return { r = r, now = now, tickets = {}, users = {}, held = {}, waited = {}, from = {},
    counts = {}, by = {}, inside = call('ZCARD', KEYS[r.b + HELD]) }
end

local function count(e, field, step) e.counts[field] = (e.counts[field] or 0) + step end

local function ended(e, user, ticket, code)
  ticket[STATE], ticket[UNTIL], ticket[OURS] = code, -1, 0
  e.by[user] = ticket
  e.users[#e.users + 1] = user
  count(e, code, 1)
end

-- A promoted ticket ends. Fewer slots in use than tickets that hold one means that another
-- program has given some back already: this one's is not given back a second time.
local function end_promoted(e, user, ticket, code)
  local r = e.r
  if ticket[OURS] == 1 then
    if r.slots > 0 and r.slots >= e.inside then r.slots = r.slots - 1 end
    e.inside = e.inside - 1
    e.held[#e.held + 1] = user
    count(e, ticket[STATE], -1)
  else
    r.slots = math.max(0, r.slots - 1)
    count(e, 'joined', 1) -- counted by how it ended
  end
  ended(e, user, ticket, code)
end

-- `record` and `seen` are the waiter's record and last sign of life.
local function end_waiting(e, user, lane, score, record, seen, code)
  if not seen then count(e, 'joined', 1) end
  local instance, joined = read_record(record)
  local number = number_of(score)
  e.waited[#e.waited + 1] = user
  e.from[lane] = e.from[lane] or {}
  e.from[lane][#e.from[lane] + 1] = user
  ended(e, user, { 'W', lane, number, joined or math.floor(number / 1000), -1, -1, -1, '',
    instance, 0 }, code)
end

local function save_ended(e)
  local r, b = e.r, e.r.b
  if #e.users == 0 then return end
  variadic('ZREM', KEYS[b + HELD], e.held)
  for lane, users in pairs(e.from) do variadic('ZREM', lane_key(r, lane), users) end
  variadic('HDEL', KEYS[b + RECORDS], e.waited)
  variadic('HDEL', KEYS[b + USERS], e.waited)
  variadic('ZREM', KEYS[b + SEEN], e.waited)
  variadic('HDEL', KEYS[b + UNRECORDED], e.waited)
  local tickets, gone = {}, {}
  for i, user in ipairs(e.users) do
    tickets[2 * i - 1], tickets[2 * i] = user, cmsgpack.pack(e.by[user])
    gone[2 * i - 1], gone[2 * i] = e.now + KEEP_ENDED, user
  end
  variadic('HSET', KEYS[b + TICKETS], tickets)
  variadic('ZADD', KEYS[b + GONE], gone)
  for field, step in pairs(e.counts) do
    if step ~= 0 then call('HINCRBY', KEYS[b + ROOM], field, step) end
  end
end
