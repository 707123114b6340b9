-- POLICY_SHARED: in the one slot of what all keys share, decide caps without a key and paces, all
-- or nothing, messages in order.
--
-- A message comes with what was found of it before: `ready` 1: everything else lets it go, and its
-- places elsewhere are reserved; 2: they are not, because a rule here was expected to refuse it;
-- 0: something else refuses it, and only a slot or a release is left to do here.
--
-- KEYS  a group (only one): version, paces, then three a counter: sends, ids, counted
--       (places.lua)
-- ARGV  1 groups (msgpack): { first key, first argument,
--         plans = { { caps = { { counter, cap } … }, paces = { { name, kind, ticks, gap, slack,
--           whole 1, blocks 1, longest deferral or false } … },
--           quiet spans ahead = { from, to … } } … },
--         runs = { what, plan, until, ready, how many messages in a row … },
--         false, or { account of each message, more of each } }
--         until: KEEP holds the place until then; RELEASE gives back the place unless it is of a
--           later decision (0: any place)
--         more: 0, or { 1 if its refusal may come from a place held in this batch, until, deadline
--           or 0, 1 if it is blocked, waiting since, pace whose slot it has or 0 }
--       2 now · 3 hold places until · 4 version · 5 time to live of a counter (ms)
--       a group's argument: the ids of its messages in one
-- →     a group: a string { stale version }, or 0 when that is the answer of every message, or
--       answers, maybe fewer than messages:
--       0 let go (or done) · 1 `ready` 2, but nothing here refuses it: to be reserved first; the
--       rest is not decided · { rule, until, used … } of the rules that do not let it go, caps
--       first, then paces; when only looked at, of all · false: the place it was refused for may
--       be free again; it and the rest are not decided
-- @include stores/redis/policies/places.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = tonumber(ARGV[2])
local hold_until = tonumber(ARGV[3])
local version = tonumber(ARGV[4])
local ttl = ARGV[5]

local k, a, plans, runs, more_of = unpack(groups[1])
local looks = runs[1] == LOOK
if not is_current(KEYS[k + 1], version, not looks) then
  return { redis.call('GET', KEYS[k + 1]) }
end

local counters, paces = {}, {}
local ids = {}
for i = 1, #ARGV[a + 1], ID do ids[#ids + 1] = sub(ARGV[a + 1], i, i + ID - 1) end

local function counter_of(n)
  local c = counters[n]
  if not c then
    local sends, held, counted = unpack(KEYS, k + 3 * n, k + 3 * n + 2)
    c = counter_at(sends, held, counted, ids, now)
    counters[n] = c
  end
  return c
end

local function hold(c, s, me)
  local ends, was_counted = place_of(c, me, now)
  if not was_counted and is_ours(ends, hold_until) then write_hold(c, me, hold_until, now) end
  prune(c, s)
  c.changed = true
end

local function cap_free_at(c, s, me)
  local ends, was_counted = place_of(c, me, now)
  local mine = ends > now
  local free, used = free_at(c, s, now, c.waiting - (mine and 1 or 0))
  if mine or was_counted then free = 0 end
  return free, used
end

-- Paces: the generic cell rate algorithm in whole ticks, as in penstock.limits.pace.

local PACE, TICKS, GAP, SLACK, WHOLE, PACE_BLOCKS, PACE_DEFERS = 1, 3, 4, 5, 6, 7, 8

local function pace_of(p)
  local state = paces[p[PACE]]
  if not state then
    local blob = redis.call('HGET', KEYS[k + 2], p[PACE])
    local ticks, next_, cursor = p[TICKS], 0, 0
    if blob then ticks, next_, cursor = unpack(cmsgpack.unpack(blob)) end
    state = { ticks = ticks, next = next_, cursor = cursor }
    paces[p[PACE]] = state
  end
  if state.ticks ~= p[TICKS] then -- the rate was changed: the same moments in its ticks
    local function converted(value)
      local rest = math.fmod(value, state.ticks)
      return (value - rest) / state.ticks * p[TICKS] + divided_up(rest * p[TICKS], state.ticks)
    end
    state.next, state.cursor, state.ticks = converted(state.next), converted(state.cursor), p[TICKS]
  end
  return state
end

local function pace_free_at(p, state, has_slot)
  local last = math.max(state.next, state.cursor)
  if (has_slot and state.next or last) - p[SLACK] <= now * p[TICKS] then return 0 end
  return divided_up(last - p[SLACK], p[TICKS])
end

local function go(p, state, number)
  state.next = math.max(state.next, now * p[TICKS]) + number * p[GAP]
  state.changed = true
end

-- May so many go now, one after the other?
local function pace_fits(p, state, number)
  local at, last = now * p[TICKS], state.next
  if number > 1 then last = math.max(last, at) + (number - 1) * p[GAP] end
  if p[WHOLE] ~= 1 then last = math.max(last, state.cursor) end
  return last - p[SLACK] <= at
end

local function give_slot(p, state)
  local last = math.max(state.next, state.cursor)
  local slot = divided_up(last - p[SLACK], p[TICKS])
  state.cursor = math.max(last, slot * p[TICKS]) + p[GAP]
  state.changed = true
end

local NOTHING = { 0, 0, 0, 0, 0, 0 }

-- What the rules here say: { rule, until, used … }, whether one acts, which refuse, and with what
-- was found before: the latest moment, the deadline, whether it is blocked.
local function findings(plan, me, more, all)
  local _, latest, deadline, blocked, since, slot = unpack(more)
  local found, acts, refusing = {}, false, {}
  blocked = blocked == 1

  local function add(rule, kind, free, used, blocks, defers)
    if free > 0 or all then
      local f = #found
      found[f + 1], found[f + 2], found[f + 3] = rule, free, used
    end
    if free == 0 then return end
    refusing[rule] = free
    if kind == ACTING then
      acts = true
      blocked = blocked or blocks == 1
      latest = math.max(latest, free)
      if defers and (deadline == 0 or since + defers + 1 < deadline) then
        deadline = since + defers + 1
      end
    end
  end

  local caps, plan_paces = plan[1], plan[2]
  for i = 1, #caps do
    local s = caps[i][2]
    if s[KIND] ~= COUNTED then
      local free, used = cap_free_at(counter_of(caps[i][1]), s, me)
      add(i, s[KIND], free, used, s[BLOCKS], s[DEFERS])
    end
  end
  for i = 1, #plan_paces do
    local p = plan_paces[i]
    if p[KIND] ~= COUNTED then
      local free = pace_free_at(p, pace_of(p), p[WHOLE] == 1 or slot == i)
      add(#caps + i, p[KIND], free, 0, p[PACE_BLOCKS], p[PACE_DEFERS])
    end
  end
  local waits = not blocked and (deadline == 0 or latest < deadline)
  return found, acts, refusing, waits and latest or 0
end

local function reserve(plan, me, refusing)
  local caps, plan_paces = plan[1], plan[2]
  for i = 1, #caps do
    if not refusing[i] then hold(counter_of(caps[i][1]), caps[i][2], me) end
  end
  for i = 1, #plan_paces do
    if not refusing[#caps + i] then go(plan_paces[i], pace_of(plan_paces[i]), 1) end
  end
end

local function let_go(plan, me)
  for _, cap in ipairs(plan[1]) do
    local c = counter_of(cap[1])
    if is_ours(place_of(c, me, now), hold_until) then forget_hold(c, me, now) end
  end
end

local function is_quiet(spans, moment)
  for i = 1, #spans, 2 do
    if spans[i] <= moment and moment < spans[i + 1] then return true end
  end
  return false
end

-- Whoever waits for nothing but a pace gets the next slot of it: of the first pace that gives the
-- latest moment, which is the one the message is told, and only where no other rule gives the same.
local function give_slots(plan, refusing, latest, more)
  if latest == 0 or more[2] == latest or is_quiet(plan[3], latest) then return end
  local caps, plan_paces = plan[1], plan[2]
  for i = 1, #caps do
    if caps[i][2][KIND] == ACTING and refusing[i] == latest then return end
  end
  for i = 1, #plan_paces do
    local p = plan_paces[i]
    if p[KIND] == ACTING and refusing[#caps + i] == latest then
      give_slot(p, pace_of(p))
      return
    end
  end
end

-- All at once, when no rule here can refuse any of them: the same as one by one.

-- { plan → how many messages }, or nil when some must be decided one by one.
local function tallied()
  local numbers = {}
  if more_of then return nil end
  for r = 1, #runs, 5 do
    if runs[r] ~= DECIDE or runs[r + 3] ~= 1 then return nil end
    local plan = runs[r + 1]
    numbers[plan] = (numbers[plan] or 0) + runs[r + 4]
  end
  return numbers
end

local function all_fit(numbers)
  local held, paced = {}, {}
  for plan, number in pairs(numbers) do
    for _, cap in ipairs(plans[plan][1]) do held[cap[1]] = (held[cap[1]] or 0) + number end
    for _, p in ipairs(plans[plan][2]) do paced[p[PACE]] = (paced[p[PACE]] or 0) + number end
  end
  for plan in pairs(numbers) do
    for _, cap in ipairs(plans[plan][1]) do
      local c, s = counter_of(cap[1]), cap[2]
      if s[KIND] ~= COUNTED then
        if s[INTERVAL] > 0 or sent(c, s) + c.waiting + held[cap[1]] > s[LIMIT] then return false end
      end
    end
    for _, p in ipairs(plans[plan][2]) do
      if p[KIND] ~= COUNTED and not pace_fits(p, pace_of(p), paced[p[PACE]]) then return false end
    end
  end
  return true
end

local function reserve_all(numbers)
  local item = 0
  for r = 1, #runs, 5 do
    local caps, last = plans[runs[r + 1]][1], item + runs[r + 4]
    for j = 1, #caps do
      local c = counter_of(caps[j][1])
      if next(c.values) then
        for i = item + 1, last do hold(c, caps[j][2], ids[i]) end
      else
        hold_all(c, ids, item + 1, last, hold_until)
        prune(c, caps[j][2])
      end
    end
    item = last
  end
  for plan, number in pairs(numbers) do
    for _, p in ipairs(plans[plan][2]) do go(p, pace_of(p), number) end
  end
end

local function write_all()
  if looks then return end
  for _, c in pairs(counters) do write_counter(c, now, ttl) end
  for name, state in pairs(paces) do
    if state.changed then
      redis.call('HSET', KEYS[k + 2], name,
        cmsgpack.pack({ state.ticks, state.next, state.cursor }))
    end
  end
end

local numbers = tallied()
if numbers and all_fit(numbers) then
  reserve_all(numbers)
  write_all()
  return { 0 }
end

local answers, broken, plain = {}, {}, true

-- The answer to a message that is to be decided; nil: it and the following ones are not.
local function answer_to(item, what, plan, ready)
  local more, account, me = NOTHING, false, ids[item]
  if more_of then
    account = more_of[1][item]
    if more_of[2][item] ~= 0 then more = more_of[2][item] end
  end
  if more[1] == 1 and broken[account] then return nil, false end
  local found, acts, refusing, latest = findings(plan, me, more, what == LOOK)
  if what == DECIDE and not acts then
    if ready == 2 then return nil, 1 end
    if ready == 1 then reserve(plan, me, refusing) end
  end
  if what == DECIDE and (acts or ready == 0) then
    let_go(plan, me)
    give_slots(plan, refusing, latest, more)
    if ready == 1 and account then broken[account] = true end
  end
  return #found > 0 and found or 0
end

local function conclude(what, plan, first, last, until_)
  for _, cap in ipairs(plan[1]) do
    local c = counter_of(cap[1])
    if what == COMMIT then
      count_sends(c, cap[2], ids, first, last, now)
    else
      for i = first, last do
        local ends = place_of(c, ids[i], now)
        if what == RELEASE then
          if is_ours(ends, until_) then forget_hold(c, ids[i], now) end
        elseif ends > now then
          write_hold(c, ids[i], until_, now)
        end
      end
    end
  end
end

local function answer_all()
  local item = 0
  for r = 1, #runs, 5 do
    local what, plan, until_, ready, number = unpack(runs, r, r + 4)
    plan = plans[plan]
    if what > LOOK then conclude(what, plan, item + 1, item + number, until_) end
    for i = item + 1, item + number do
      answers[i] = 0
      if what <= LOOK then
        local answer, last = answer_to(i, what, plan, ready)
        if answer ~= 0 then plain = false end
        if answer == nil then
          answers[i] = last
          return
        end
        answers[i] = answer
      end
    end
    item = item + number
  end
end

answer_all()
write_all()
return { plain and #answers == #ids and 0 or answers }
