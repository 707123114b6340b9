-- POLICY_KEYED: in the shard of their keys, look up suppression and reserve, count or give back
-- in every cap whose scope contains the key; a message's caps all or none, messages in order.
--
-- KEYS  a group: version, the suppression lists its plans point at, the accounts (one a key)
-- ARGV  1 groups (msgpack): { first key, first argument, number of lists, number of accounts,
--         plans = { { lists = { place … }, caps = { cap … } } … },
--         items = { account, plan, what, id, until … } }
--         A cap is described in policy_common.lua. `until`: KEEP holds the place until then.
--       2 now · 3 hold places until · 4 version · 5 time to live of an account (ms)
--       6 marks of living policies (msgpack)
--       a group's arguments: the key of each account
-- →     a group: a string { stale version }, or 0 when that is the answer of every item, or an
--       answer an item: 0 reserved (or done) · -1 the same, and it held a place before ·
--       { which of its lists suppresses it or 0, cap, until, used … } of the caps that do not let
--       it go; when only looked at, of all its caps

local groups = cmsgpack.unpack(ARGV[1])
local now = tonumber(ARGV[2])
local hold_until = tonumber(ARGV[3])
local version = tonumber(ARGV[4])
local ttl = ARGV[5]
local living = {}
for _, mark in ipairs(cmsgpack.unpack(ARGV[6])) do living[mark] = true end

-- Accounts as they are kept: { version, { name → kept counter }, 2 }. A kept counter is
-- { times, counts, held, latest send } like any other, but for two strings that need not be taken
-- apart to be added to: times, 8 bytes each, and held, { id, until } of 16 and 8 bytes each.

local NUMBER = '>d'
local ID, ENTRY = 16, 24
local HOLD, COUNTED_NOW = struct.pack(NUMBER, hold_until), struct.pack(NUMBER, -(now + REMEMBER))

local function strung(numbers)
  local packed = {}
  for i = 1, #numbers do packed[i] = struct.pack(NUMBER, numbers[i]) end
  return table.concat(packed)
end

-- The counter with its times taken apart.
local function opened(kept)
  local times, packed = {}, kept[TIMES]
  for i = 1, #packed, 8 do times[#times + 1] = struct.unpack(NUMBER, packed, i) end
  return { times, kept[COUNTS], {}, kept[LAST] }
end

local function close(kept, c)
  kept[TIMES], kept[COUNTS], kept[LAST] = strung(c[TIMES]), c[COUNTS], c[LAST]
end

-- From when a counter was kept as it is: held was a map, or a list, of ids of any length.
local function converted(account)
  for _, c in pairs(account) do
    local held, entries = c[HELD], {}
    local function add(id, ends)
      id = string.sub(id .. string.rep('\0', ID), 1, ID)
      entries[#entries + 1] = id .. struct.pack(NUMBER, ends)
    end
    for id, ends in pairs(held) do
      if type(id) == 'string' then
        add(id, ends)
      elseif id % 2 == 1 then
        add(ends, held[id + 1])
      end
    end
    c[TIMES], c[HELD] = strung(c[TIMES]), table.concat(entries)
  end
end

local function unpacked(blob)
  if not blob then return { version, {}, 2 } end
  local account = cmsgpack.unpack(blob)
  if account[3] ~= 2 then
    converted(account[2])
    account[3] = 2
  end
  if account[1] ~= version then -- counters of policies that were dropped
    for name in pairs(account[2]) do
      if not living[string.match(name, '^%d+')] then account[2][name] = nil end
    end
    account[1] = version
  end
  return account
end

-- (where the entry of `me` begins or nil, until when it holds: 0 for none).
local function look_up(held, me)
  local place = string.find(held, me, 1, true)
  while place and place % ENTRY ~= 1 do place = string.find(held, me, place + 1, true) end
  if not place then return nil, 0 end
  return place, (struct.unpack(NUMBER, held, place + ID))
end

-- How many hold a place, but for the entry at `place`.
local function others_in(held, place)
  local number = 0
  for i = 1, #held, ENTRY do
    if i ~= place and struct.unpack(NUMBER, held, i + ID) > now then number = number + 1 end
  end
  return number
end

-- The held with the entry at `place` (nil: at the end) saying `ends`, packed.
local function written(held, place, me, ends)
  if not place then return held .. me .. ends end
  return string.sub(held, 1, place + ID - 1) .. ends .. string.sub(held, place + ENTRY)
end

local function without(held, place)
  return string.sub(held, 1, place - 1) .. string.sub(held, place + ENTRY)
end

local function tidied(held)
  local kept = {}
  for i = 1, #held, ENTRY do
    if math.abs((struct.unpack(NUMBER, held, i + ID))) > now then
      kept[#kept + 1] = string.sub(held, i, i + ENTRY - 1)
    end
  end
  return table.concat(kept)
end

-- Give back the place of `me`; false: it held none.
local function give_back(c, me)
  local place, mine = look_up(c[HELD], me)
  if mine <= 0 then return false end
  c[HELD] = without(c[HELD], place)
  return true
end

local function hold(c, s, me, place, mine)
  local held = c[HELD]
  if (#held / ENTRY) % TIDY == TIDY - 1 then
    held = tidied(held)
    place, mine = look_up(held, me)
  end
  if mine >= -now then held = written(held, place, me, HOLD) end
  c[HELD] = held
  if s[FLOOR] and c[TIMES] ~= '' and struct.unpack(NUMBER, c[TIMES]) <= s[PRUNE] then
    local whole = opened(c)
    prune(whole, s)
    close(c, whole)
  end
end

-- The counted ids that were counted first, when there are too many.
local function forget_counted(c)
  local held = c[HELD]
  local number = #held / ENTRY
  if number <= 2 * REMEMBERED then return end
  local counted, kept = {}, {}
  for i = 1, #held, ENTRY do
    local ends, entry = struct.unpack(NUMBER, held, i + ID), string.sub(held, i, i + ENTRY - 1)
    if ends < 0 then
      counted[#counted + 1] = { -ends, entry }
    else
      kept[#kept + 1] = entry
    end
  end
  table.sort(counted, function(one, other) return one[1] < other[1] end)
  for i = math.min(#counted, number - REMEMBERED) + 1, #counted do
    kept[#kept + 1] = counted[i][2]
  end
  c[HELD] = table.concat(kept)
end

local function add_send(c, s)
  if s[FLOOR] and s[EXACT] == 1 and s[GRAIN] >= c[LAST] and not c[COUNTS][1] then
    c[TIMES] = c[TIMES] .. struct.pack(NUMBER, s[GRAIN])
    c[LAST] = math.max(c[LAST], now)
  else
    local whole = opened(c)
    add_sends(whole, s, now, 1)
    close(c, whole)
  end
end

-- What is done about one message in the counters of its key; each says whether it changed them.

local function let_go(account, caps, me)
  local changed = false
  for i = 1, #caps do
    local c = account[caps[i][NAME]]
    if c and give_back(c, me) then changed = true end
  end
  return changed
end

local function count_send(account, caps, me)
  local changed = false
  for i = 1, #caps do
    local s = caps[i]
    local c = account[s[NAME]]
    local place, mine
    if c then place, mine = look_up(c[HELD], me) end
    if s[UNSEEN] == 0 or place then
      if not c then
        c = { '', {}, '', 0 }
        account[s[NAME]] = c
      end
      if not place or mine >= -now then
        c[HELD] = written(c[HELD], place, me, COUNTED_NOW)
        forget_counted(c)
        add_send(c, s)
        changed = true
      end
    end
  end
  return changed
end

local function keep(account, caps, me, until_)
  local changed = false
  for i = 1, #caps do
    local c = account[caps[i][NAME]]
    if c then
      local place, mine = look_up(c[HELD], me)
      if mine > 0 then
        c[HELD] = written(c[HELD], place, me, struct.pack(NUMBER, until_))
        changed = true
      end
    end
  end
  return changed
end

-- What the caps say: { cap, until, used … } of those that refuse or nil, whether one of them acts,
-- and whether the message held a place before. `places` and `ends` are filled for `reserve`.
local places, ends = {}, {}
local function findings(account, caps, me, all)
  local found, acts, held = nil, false, false
  for i = 1, #caps do
    local s = caps[i]
    local c = account[s[NAME]]
    local kind = s[KIND]
    places[i], ends[i] = nil, 0
    if c or (all and kind ~= COUNTED) then
      local counter = c or { '', {}, '', 0 }
      local place, mine = look_up(counter[HELD], me)
      places[i], ends[i] = place, mine
      if kind ~= COUNTED then
        local free, used = 0, 0
        local has_place = mine > now or mine < -now
        if has_place then held = true end
        -- With fewer sends and places than the limit there is one more, whatever they are.
        local surely = s[INTERVAL] == 0
          and not counter[COUNTS][1]
          and #counter[TIMES] / 8 + #counter[HELD] / ENTRY < s[LIMIT]
        if all or not (has_place or surely) then
          free, used = free_at(opened(counter), s, now, others_in(counter[HELD], place))
          if has_place then free = 0 end
        end
        if free > 0 or all then
          found = found or {}
          local f = #found
          found[f + 1], found[f + 2], found[f + 3] = i, free, used
        end
        if free > 0 then
          ends[i] = false -- refuses
          acts = acts or kind == ACTING
        end
      end
    end
  end
  return found, acts, held
end

-- After `findings`: a place in every cap that does not refuse.
local function reserve(account, caps, me)
  local changed = false
  for i = 1, #caps do
    if ends[i] then
      local s = caps[i]
      local c = account[s[NAME]]
      if c then
        hold(c, s, me, places[i], ends[i])
      else
        account[s[NAME]] = { '', {}, me .. HOLD, 0 }
      end
      changed = true
    end
  end
  return changed
end

local function decide(group)
  local k, a, listed, number, plans, items = unpack(group)
  local first = k + 1 + listed -- the key before the first account
  if not is_current(KEYS[k + 1], version, items[3] ~= LOOK) then
    return redis.call('GET', KEYS[k + 1])
  end

  local members = {}
  for place = 1, listed do
    members[place] = redis.call('SMISMEMBER', KEYS[k + 1 + place], unpack(ARGV, a + 1, a + number))
  end
  local function suppressed(lists, n)
    for i = 1, #lists do
      if members[lists[i]][n] == 1 then return i end
    end
    return 0
  end

  local blobs = redis.call('MGET', unpack(KEYS, first + 1, first + number))
  local accounts, changed, answers, plain = {}, {}, {}, true
  for i = 1, #items, 5 do
    local n, plan, what, me = items[i], plans[items[i + 1]], items[i + 2], items[i + 3]
    local lists, caps = plan[1], plan[2]
    local whole = accounts[n]
    if not whole then
      whole = unpacked(blobs[n])
      accounts[n] = whole
    end
    local account, answer, touched = whole[2], 0, false
    if what <= LOOK then
      local list = listed > 0 and suppressed(lists, n) or 0
      local found, acts, held = findings(account, caps, me, what == LOOK)
      if what == DECIDE and list == 0 and not acts then
        touched = reserve(account, caps, me)
      elseif what ~= LOOK then
        touched = let_go(account, caps, me)
      end
      if list > 0 or found then
        answer = { list, unpack(found or {}) }
        plain = false
      elseif held then
        answer = -1
        plain = false
      end
    elseif what == RELEASE then
      touched = let_go(account, caps, me)
    elseif what == COMMIT then
      touched = count_send(account, caps, me)
    else
      touched = keep(account, caps, me, items[i + 4])
    end
    if touched then changed[n] = true end
    answers[#answers + 1] = answer
  end
  for n in pairs(changed) do
    redis.call('SET', KEYS[first + n], cmsgpack.pack(accounts[n]), 'PX', ttl)
  end
  return plain and 0 or answers
end

local answers = {}
for i = 1, #groups do answers[i] = decide(groups[i]) end
return answers
