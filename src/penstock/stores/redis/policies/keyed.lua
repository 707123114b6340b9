-- POLICY_KEYED: in the shard of their keys, look up suppression and reserve, count or give back
-- in every cap whose scope contains the key; a message's caps all or none, messages in order.
--
-- KEYS  a group: version, accounts, the suppression lists its plans point at
-- ARGV  1 groups (msgpack): { first key, first argument, number of lists, number of accounts,
--         plans = { { lists = { place … }, caps = { cap … }, tail } … },
--         runs = { what, plan, until, ready, how many messages in a row … },
--         the account of each message, or false: one message an account, in their order }
--         A cap is described in common.lua. `until`: KEEP holds the place until then;
--         RELEASE gives back the place unless it is of a later decision (0: any place).
--         tail: { caps as a tail has them, with fewer sends and places than this in each counter
--         there is one more }; false: its messages never go into a tail
--       2 now · 3 hold places until · 4 version · 5 time to live of an account (ms)
--       6 marks of living policies (msgpack)
--       a group's arguments: the ids of its messages in one, then the key of each account
-- →     a group: a string { stale version }, or 0 when that is the answer of every message, or an
--       answer a message: 0 reserved (or done) · -1 the same, and it held a place before ·
--       { which of its lists suppresses it or 0, cap, until, used … } of the caps that do not let
--       it go; when only looked at, of all its caps
-- @include stores/redis/policies/kept.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = tonumber(ARGV[2])
local hold_until = tonumber(ARGV[3])
local version = tonumber(ARGV[4])
local ttl = ARGV[5]
local LONGEST = 32 -- entries of a tail
local HOLD, COUNTED_NOW = pack_struct(NUMBER, hold_until), pack_struct(NUMBER, -(now + REMEMBER))

-- Half an hour more or less: how long an account is of use is not written with every message.
local gone_at = math.ceil((now + tonumber(ttl)) / STEP)
local lasts_until = gone_at - 4
local GONE_AT = pack_struct('>I3', gone_at)

local living
local function is_alive(name)
  if not living then
    living = {}
    for _, mark in ipairs(cmsgpack.unpack(ARGV[6])) do living[mark] = true end
  end
  return living[string.match(name, '^%d+')]
end

-- The account of a key, without the counters of dropped policies.
local function account_in(blob)
  local account = unpacked(blob, now)
  if account[1] ~= version then
    for name in pairs(account[2]) do
      if not is_alive(name) then account[2][name] = nil end
    end
    account[1] = version
  end
  return account
end

local function packed(account)
  local most = 0
  for _, c in pairs(account[2]) do
    local number = c[COUNTS][1] and UNSURE or #c[TIMES] / 8 + #c[HELD] / ENTRY
    most = math.min(math.max(most, number), UNSURE)
  end
  local body = cmsgpack.pack(account)
  return pack_struct('>BI3I2I4I2', FULL, gone_at, most, FULL_HEAD + 2 + #body, 0) .. body
end

-- How many hold a place, but for the entry at `place`.
local function others_in(held, place)
  local number = 0
  for i = 1, #held, ENTRY do
    if i ~= place and unpack_struct(NUMBER, held, i + ID) > now then number = number + 1 end
  end
  return number
end

local function tidied(held)
  local kept = {}
  for i = 1, #held, ENTRY do
    if math.abs((unpack_struct(NUMBER, held, i + ID))) > now then
      kept[#kept + 1] = string.sub(held, i, i + ENTRY - 1)
    end
  end
  return table.concat(kept)
end

-- Give back the place of `me`, unless it is of a later decision; false: it held no such place.
local function give_back(c, me, until_)
  local place, mine = look_up(c[HELD], me)
  if mine <= 0 or not is_ours(mine, until_) then return false end
  c[HELD] = without(c[HELD], place)
  return true
end

local function hold(c, s, me, place, mine)
  local held = c[HELD]
  if (#held / ENTRY) % TIDY == TIDY - 1 then
    held = tidied(held)
    place, mine = look_up(held, me)
  end
  if mine >= -now and is_ours(mine, hold_until) then held = written(held, place, me, HOLD) end
  c[HELD] = held
  if s[FLOOR] and c[TIMES] ~= '' and unpack_struct(NUMBER, c[TIMES]) <= s[PRUNE] then
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
    local ends, entry = unpack_struct(NUMBER, held, i + ID), string.sub(held, i, i + ENTRY - 1)
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

-- The actions on one message in the counters of its key; each returns whether it changed them.

local function let_go(account, caps, me, until_)
  local changed = false
  for i = 1, #caps do
    local c = account[caps[i][NAME]]
    if c and give_back(c, me, until_) then changed = true end
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
        add_send(c, s, now)
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
      if mine > now then -- one that is over may be somebody else's by now
        c[HELD] = written(c[HELD], place, me, pack_struct(NUMBER, until_))
        changed = true
      end
    end
  end
  return changed
end

-- The caps' findings: { cap, until, used … } of those that refuse or nil, whether one is enforced,
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

-- The short way of a message whose key has few: its tail is added to, or an entry of it changed.

-- Each returns the new account (true: unchanged), or nil: it needs the long way.

local function joined_full(blob, gone, tail, me)
  local caps, most, begins = tail[1], unpack_struct('>I2I4', blob, 5)
  local number = (#blob - begins) / ENTRY
  if number >= LONGEST or most + number >= tail[2] or find(blob, me, 1, true) then return nil end
  local same = find(blob, caps, FULL_HEAD + 1, true) == FULL_HEAD + 1
  if same and gone >= lasts_until then return blob .. me .. HOLD end
  if not same and number > 0 then return nil end
  local at = FULL_HEAD + 3 + unpack_struct('>I2', blob, FULL_HEAD + 1)
  local body = sub(blob, at, begins)
  local head = pack_struct('>BI3I2I4', FULL, gone_at, most, FULL_HEAD + #caps + #body)
  return head .. caps .. body .. sub(blob, begins + 1) .. me .. HOLD
end

-- With a place for `me` in the tail.
local function joined(blob, tail, me)
  if not blob then return tail.head .. me .. HOLD end
  local kind, high, middle, low = byte(blob, 1, 4)
  local gone = high * 65536 + middle * 256 + low
  if kind == FULL then return joined_full(blob, gone, tail, me) end
  local size = tail.size
  if kind ~= SHORT or find(blob, tail[1], SHORT_HEAD + 1, true) ~= SHORT_HEAD + 1 then return nil end
  local number = (#blob - size) / ENTRY
  if number >= LONGEST or number >= tail[2] or find(blob, me, size + 1, true) then return nil end
  if gone >= lasts_until then return blob .. me .. HOLD end
  return tail.head .. sub(blob, size + 1) .. me .. HOLD
end

-- With the place of `me` in the tail saying `ends`, if it is held for longer than `least`.
local function changed_to(blob, tail, me, ends, least)
  if not blob then return nil end
  local kind, high, middle, low = byte(blob, 1, 4)
  local at, begins = SHORT_HEAD + 1, tail.size
  if kind == FULL then
    at, begins = FULL_HEAD + 1, unpack_struct('>I4', blob, 7)
  elseif kind ~= SHORT then
    return nil
  end
  local place = find(blob, me, begins + 1, true)
  if not place or (place - begins) % ENTRY ~= 1 then return nil end
  if byte(blob, place + ID) >= 128 then return nil end -- negative: counted
  if least and unpack_struct(NUMBER, blob, place + ID) <= least then return nil end
  if find(blob, tail[1], at, true) ~= at then return nil end
  if kind == SHORT and #blob == begins + ENTRY then return tail.head .. me .. ends end
  if high * 65536 + middle * 256 + low < lasts_until then return nil end
  local after = sub(blob, 1, place + ID - 1) .. ends
  return #after == #blob and after or after .. sub(blob, place + ENTRY)
end

local function counted(blob, tail, me) return changed_to(blob, tail, me, COUNTED_NOW) end

local function kept_on(blob, tail, me, until_)
  return changed_to(blob, tail, me, pack_struct(NUMBER, until_), now)
end

local function refused(blob) return not blob or nil end

local function released(blob, _, me)
  if not blob then return true end
  local kind = byte(blob)
  return (kind == SHORT or kind == FULL) and not find(blob, me, 1, true) or nil
end

local SHORTLY = {
  [DECIDE] = joined, [REFUSE] = refused, [RELEASE] = released, [COMMIT] = counted, [KEEP] = kept_on,
}

-- The long way of a message: its answer, and whether its counters changed.
local function looked_at(account, caps, what, me, list, until_)
  if what == RELEASE then return 0, let_go(account, caps, me, until_) end
  if what == COMMIT then return 0, count_send(account, caps, me) end
  if what == KEEP then return 0, keep(account, caps, me, until_) end
  local found, acts, held = findings(account, caps, me, what == LOOK)
  local touched = false
  if what == DECIDE and list == 0 and not acts then
    touched = reserve(account, caps, me)
  elseif what ~= LOOK then
    touched = let_go(account, caps, me, hold_until)
  end
  if list > 0 or found then return { list, unpack(found or {}) }, touched end
  return held and -1 or 0, touched
end

local function decide(group)
  local k, a, listed, number, plans, runs, placed = unpack(group)
  local looks = runs[1] == LOOK
  if not is_current(KEYS[k + 1], version, not looks) then
    return redis.call('GET', KEYS[k + 1])
  end

  local members = {}
  for i = 1, listed do
    members[i] = redis.call('SMISMEMBER', KEYS[k + 2 + i], unpack(ARGV, a + 2, a + 1 + number))
  end
  local function suppressed(lists, n)
    for i = 1, #lists do
      if members[lists[i]][n] == 1 then return i end
    end
    return 0
  end

  local ids, item = ARGV[a + 1], 0
  if not looks then sweep(KEYS[k + 2], ids, now) end
  local blobs = read(KEYS[k + 2], a + 2, number)
  local accounts, changed, answers, plain = {}, {}, {}, true
  local fields, f = {}, 0
  for r = 1, #runs, 5 do
    local what, plan, until_ = runs[r], plans[runs[r + 1]], runs[r + 2]
    local lists, caps, tail = plan[1], plan[2], plan[3]
    local shortly = tail and SHORTLY[what]
    if tail and not tail.head then
      tail.head, tail.size = string.char(SHORT) .. GONE_AT .. tail[1], SHORT_HEAD + #tail[1]
    end
    for _ = 1, runs[r + 4] do
      item = item + 1
      local n = placed and placed[item] or item
      local me = sub(ids, ID * item - ID + 1, ID * item)
      local list = listed > 0 and what <= LOOK and suppressed(lists, n) or 0
      local account = accounts[n]
      local after = shortly and not account and list == 0 and shortly(blobs[n], tail, me, until_)
      if not after then
        if not account then
          account = account_in(blobs[n])
          accounts[n] = account
        end
        local answer, touched = looked_at(account[2], caps, what, me, list, until_)
        if touched then changed[n] = true end
        if answer ~= 0 then answers[item], plain = answer, false end
      elseif after ~= true and placed then
        blobs[n], changed[n] = after, true
      elseif after ~= true then
        fields[f + 1], fields[f + 2] = ARGV[a + 1 + n], after
        f = f + 2
      end
    end
  end
  for n in pairs(changed) do
    fields[f + 1], fields[f + 2] = ARGV[a + 1 + n], accounts[n] and packed(accounts[n]) or blobs[n]
    f = f + 2
  end
  write(KEYS[k + 2], fields, ttl)
  if plain then return 0 end
  for i = 1, item do answers[i] = answers[i] or 0 end
  return answers
end

local answers = {}
for i = 1, #groups do answers[i] = decide(groups[i]) end
return answers
