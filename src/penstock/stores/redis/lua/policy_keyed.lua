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

-- Accounts as they are kept: { version, { name → counter }, 1 }.

-- Before there was a third entry, held places were a map.
local function flattened(account)
  for _, c in pairs(account) do
    local held = c[HELD]
    if #held == 0 and next(held) then
      local flat = {}
      for id, ends in pairs(held) do
        flat[#flat + 1] = id
        flat[#flat + 1] = ends
      end
      c[HELD] = flat
    end
  end
end

local function unpacked(blob)
  if not blob then return { version, {}, 1 } end
  local account = cmsgpack.unpack(blob)
  if not account[3] then
    flattened(account[2])
    account[3] = 1
  end
  if account[1] ~= version then -- counters of policies that were dropped
    for name in pairs(account[2]) do
      if not living[string.match(name, '^%d+')] then account[2][name] = nil end
    end
    account[1] = version
  end
  return account
end

-- Places held: { id, until … } in no order.

-- (where the end of `me` is or nil, the end or 0, how many others hold a place).
local function look_up(held, me)
  local place, mine, others = nil, 0, 0
  for i = 1, #held, 2 do
    local ends = held[i + 1]
    if held[i] == me then
      place, mine = i + 1, ends
    elseif ends > now then
      others = others + 1
    end
  end
  return place, mine, others
end

local function drop(held, place)
  local last = #held
  held[place - 1], held[place] = held[last - 1], held[last]
  held[last], held[last - 1] = nil, nil
end

-- Give back the place of `me`; false: it held none.
local function give_back(c, me)
  local place, mine = look_up(c[HELD], me)
  if mine <= 0 then return false end
  drop(c[HELD], place)
  return true
end

local function hold(c, s, me, place, mine)
  local held = c[HELD]
  local number = #held
  if number % (2 * TIDY) == 2 * (TIDY - 1) then
    for i = number, 2, -2 do
      if math.abs(held[i]) <= now then drop(held, i) end
    end
    place, mine = look_up(held, me)
  end
  if place then
    if mine >= -now then held[place] = hold_until end
  else
    number = #held
    held[number + 1], held[number + 2] = me, hold_until
  end
  if c[TIMES][1] then prune(c, s) end
end

-- The counted ids that were counted first, when there are too many.
local function forget_counted(c)
  local held = c[HELD]
  local number = #held / 2
  if number <= 2 * REMEMBERED then return end
  local counted, kept = {}, {}
  for i = 1, #held, 2 do
    if held[i + 1] < 0 then
      counted[#counted + 1] = { -held[i + 1], held[i] }
    else
      kept[#kept + 1] = held[i]
      kept[#kept + 1] = held[i + 1]
    end
  end
  table.sort(counted, function(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] end
    return one[2] < other[2]
  end)
  for i = math.min(#counted, number - REMEMBERED) + 1, #counted do
    kept[#kept + 1] = counted[i][2]
    kept[#kept + 1] = -counted[i][1]
  end
  c[HELD] = kept
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
        c = new_counter()
        account[s[NAME]] = c
      end
      if not place or mine >= -now then
        local held = c[HELD]
        place = place or #held + 2
        held[place - 1], held[place] = me, -(now + REMEMBER)
        forget_counted(c)
        add_sends(c, s, now, 1)
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
        c[HELD][place] = until_
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
      local counter = c or new_counter()
      local place, mine, others = look_up(counter[HELD], me)
      places[i], ends[i] = place, mine
      if kind ~= COUNTED then
        local free, used = 0, 0
        local has_place = math.abs(mine) > now
        if has_place then held = true end
        -- With fewer sends and places than the limit there is one more, whatever they are.
        local surely = s[INTERVAL] == 0
          and not counter[COUNTS][1]
          and #counter[TIMES] + others < s[LIMIT]
        if all or not (has_place or surely) then
          free, used = free_at(counter, s, now, others)
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
        account[s[NAME]] = { {}, {}, { me, hold_until }, 0 }
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
