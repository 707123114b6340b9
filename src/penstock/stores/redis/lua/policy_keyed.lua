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
-- →     a group: a string { stale version } or an answer an item:
--       0 reserved (or done) · -1 the same, and it held a place before · { which of its lists suppresses it or 0, cap, until, used … } of
--       the caps that do not let it go; when only looked at, of all its caps

local groups = cmsgpack.unpack(ARGV[1])
local now = tonumber(ARGV[2])
local hold_until = tonumber(ARGV[3])
local version = tonumber(ARGV[4])
local ttl = ARGV[5]
local living = {}
for _, mark in ipairs(cmsgpack.unpack(ARGV[6])) do living[mark] = true end

-- How many others hold a place.
local function waiting_of(c, me)
  local number = 0
  for other, ends in pairs(c[HELD]) do
    if ends > now and other ~= me then number = number + 1 end
  end
  return number
end

local function hold(c, s, me)
  local held, number = c[HELD], 0
  for _ in pairs(held) do number = number + 1 end
  if number % TIDY == TIDY - 1 then
    for other, ends in pairs(held) do
      if math.abs(ends) <= now then held[other] = nil end
    end
  end
  if (held[me] or 0) >= -now then held[me] = hold_until end
  prune(c, s)
end

-- The counted ids that were counted first, when there are too many.
local function forget_counted(held)
  local counted, number = {}, 0
  for id, ends in pairs(held) do
    number = number + 1
    if ends < 0 then counted[#counted + 1] = { -ends, id } end
  end
  if number <= 2 * REMEMBERED then return end
  table.sort(counted, function(one, other) return one[1] < other[1] end)
  for i = 1, math.min(#counted, number - REMEMBERED) do held[counted[i][2]] = nil end
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
  local blobs = redis.call('MGET', unpack(KEYS, first + 1, first + number))
  local accounts, changed = {}, {}

  local function account_of(n)
    local account = accounts[n]
    if not account then
      account = blobs[n] and cmsgpack.unpack(blobs[n]) or { version, {} }
      if account[1] ~= version then -- counters of policies that were dropped
        for name in pairs(account[2]) do
          if not living[string.match(name, '^%d+')] then account[2][name] = nil end
        end
        account[1] = version
      end
      accounts[n] = account
    end
    return account[2]
  end

  local function suppressed(lists, n)
    for i = 1, #lists do
      if members[lists[i]][n] == 1 then return i end
    end
    return 0
  end

  local function let_go(account, caps, me, n)
    for i = 1, #caps do
      local c = account[caps[i][NAME]]
      if c and (c[HELD][me] or 0) > 0 then
        c[HELD][me] = nil
        changed[n] = true
      end
    end
  end

  local function reserve(account, caps, me, n, refusing)
    for i = 1, #caps do
      if not refusing[i] then
        local c = account[caps[i][NAME]]
        if not c then
          c = new_counter()
          account[caps[i][NAME]] = c
        end
        hold(c, caps[i], me)
        changed[n] = true
      end
    end
  end

  -- { cap, until, used … } of those that refuse, whether one of them acts, and which they are.
  local function findings(account, caps, me, all)
    local found, acts, refusing, held = {}, false, {}, false
    for i = 1, #caps do
      local s = caps[i]
      local c = s[KIND] ~= COUNTED and account[s[NAME]]
      if c or (all and s[KIND] ~= COUNTED) then
        c = c or new_counter()
        local free, used = free_at(c, s, now, waiting_of(c, me))
        if math.abs(c[HELD][me] or 0) > now then free, held = 0, true end
        if free > 0 or all then
          local f = #found
          found[f + 1], found[f + 2], found[f + 3] = i, free, used
        end
        if free > 0 then
          refusing[i] = true
          acts = acts or s[KIND] == ACTING
        end
      end
    end
    return found, acts, refusing, held
  end

  local function count_send(account, caps, me, n)
    for i = 1, #caps do
      local s = caps[i]
      local c = account[s[NAME]]
      if s[UNSEEN] == 0 or (c and c[HELD][me]) then
        if not c then
          c = new_counter()
          account[s[NAME]] = c
        end
        if (c[HELD][me] or 0) >= -now then
          c[HELD][me] = -(now + REMEMBER)
          forget_counted(c[HELD])
          add_send(c, s, now)
          changed[n] = true
        end
      end
    end
  end

  local function keep(account, caps, me, n, until_)
    for i = 1, #caps do
      local c = account[caps[i][NAME]]
      if c and (c[HELD][me] or 0) > 0 then
        c[HELD][me] = until_
        changed[n] = true
      end
    end
  end

  local answers = {}
  for i = 1, #items, 5 do
    local n, plan, what, me = items[i], plans[items[i + 1]], items[i + 2], items[i + 3]
    local lists, caps = plan[1], plan[2]
    local account, answer = account_of(n), 0
    if what <= LOOK then
      local list = suppressed(lists, n)
      local found, acts, refusing, held = findings(account, caps, me, what == LOOK)
      if what == DECIDE and list == 0 and not acts then
        reserve(account, caps, me, n, refusing)
      elseif what ~= LOOK then
        let_go(account, caps, me, n)
      end
      if list > 0 or #found > 0 then
        answer = { list, unpack(found) }
      elseif held then
        answer = -1
      end
    elseif what == RELEASE then
      let_go(account, caps, me, n)
    elseif what == COMMIT then
      count_send(account, caps, me, n)
    else
      keep(account, caps, me, n, items[i + 4])
    end
    answers[#answers + 1] = answer
  end
  for n in pairs(changed) do
    redis.call('SET', KEYS[first + n], cmsgpack.pack(accounts[n]), 'PX', ttl)
  end
  return answers
end

local answers = {}
for i = 1, #groups do answers[i] = decide(groups[i]) end
return answers
