-- Shared by the scripts of policies: the arithmetic of penstock.limits on
-- counters and paces. Python has evaluated the calendar before: a cap is passed as its numbers.

-- A counter: times (oldest first), counts (how many each stands for; empty: one each), held (ids
-- and until when; negative: counted, and remembered until then; each script in a way of its own),
-- the latest send.
local TIMES, COUNTS, HELD, LAST = 1, 2, 3, 4
-- A cap as numbers.
local NAME, KIND, LIMIT, INTERVAL = 1, 2, 3, 4
local FLOOR = 5 -- sends at or before this do not count any more; false: no window
local LENGTH = 6 -- of a rolling window; 0: a calendar's, which
local ENDS = 7 -- ends then
local PRUNE = 8 -- sends at or before this can be forgotten
local GRAIN = 9 -- what a send now is written down as
local EXACT = 10 -- 1: every send by itself, 0: in steps
local BLOCKS = 11 -- 1: what it does not let go is blocked
local DEFERS = 12 -- the longest deferral, or false
local UNSEEN = 13 -- 1: a shadow, which counts only what it would have let go
-- KIND
local COUNTED, SHADOW, ACTING = 0, 1, 2
-- The actions on a message.
local DECIDE, REFUSE, LOOK, RELEASE, COMMIT, KEEP = 0, 1, 2, 3, 4, 5

local REMEMBER = 600000 -- penstock.limits.counter.REMEMBER_MS
local REMEMBERED = 1000 -- ids that were counted and are known, about
local TIDY = 16 -- places that are over are dropped when there are so many more

local KEPT = 1000 -- penstock.limits.counter.KEPT_MS
local AHEAD = 600000 -- penstock.limits.counter.AHEAD_MS

-- False if a place that is held until `ends` is of a later decision than the one that reserves
-- until `until_` (0: of none), as in penstock.limits.counter.
local function is_ours(ends, until_)
  return until_ == 0 or ends <= until_ or ends % KEPT == 0 or ends > until_ + AHEAD
end

local function new_counter() return { {}, {}, {}, 0 } end

local function sent(c, s)
  local times, counts, floor, number = c[TIMES], c[COUNTS], s[FLOOR], 0
  if not floor then return 0 end
  local weighted = #counts > 0
  for i = #times, 1, -1 do
    if times[i] <= floor then break end
    number = number + (weighted and counts[i] or 1)
  end
  return number
end

local function leaves(s, moment) return s[LENGTH] > 0 and moment + s[LENGTH] or s[ENDS] end

-- When fewer than `room` of the sends count.
local function leaves_room(c, s, now, room)
  if room <= 0 then return leaves(s, now) end
  local times, counts, seen = c[TIMES], c[COUNTS], 0
  local weighted = #counts > 0
  for i = #times, 1, -1 do
    seen = seen + (weighted and counts[i] or 1)
    if seen >= room then return leaves(s, times[i]) end
  end
  return 0
end

-- (when there is a place beside `waiting` others, 0: now · what counts now).
local function free_at(c, s, now, waiting)
  local free, used = 0, sent(c, s) + waiting
  if s[FLOOR] and used >= s[LIMIT] then free = leaves_room(c, s, now, s[LIMIT] - waiting) end
  if s[INTERVAL] > 0 then
    local latest = waiting > 0 and now or c[LAST]
    local after = latest + s[INTERVAL]
    if latest > 0 and after > now and after > free then free = after end
  end
  return free, used
end

-- Adds so many sends; the caller makes sure that each is counted once.
local function add_sends(c, s, now, number)
  if now > c[LAST] then c[LAST] = now end
  if not s[FLOOR] then return end
  local times, counts, moment, exact = c[TIMES], c[COUNTS], s[GRAIN], s[EXACT] == 1
  if not exact and #counts == 0 then
    for i = 1, #times do counts[i] = 1 end
  end
  local place = #times
  while place > 0 and times[place] > moment do place = place - 1 end
  if #counts > 0 and place > 0 and times[place] == moment then
    counts[place] = counts[place] + number
  elseif #counts > 0 or not exact then
    table.insert(times, place + 1, moment)
    table.insert(counts, place + 1, number)
  else
    for i = place + 1, place + number do table.insert(times, i, moment) end
  end
end

local function prune(c, s)
  local times = c[TIMES]
  if not s[FLOOR] or not times[1] or times[1] > s[PRUNE] then return end
  local counts, kept, numbers = c[COUNTS], {}, {}
  for i = 1, #times do
    if times[i] > s[PRUNE] then
      kept[#kept + 1] = times[i]
      if #counts > 0 then numbers[#numbers + 1] = counts[i] end
    end
  end
  c[TIMES], c[COUNTS] = kept, numbers
end

-- Whole numbers above 2^31: exact, where a division rounded down would not be.
local function divided_up(number, by)
  local rest = math.fmod(number, by)
  return (number - rest) / by + (rest > 0 and 1 or 0)
end

-- A field that no key and no id is, so long that Redis keeps the hash as a table from the start: the
-- list that it makes of short ones is searched from one end to the other.
local SEED, SEEDED = '\255', string.rep(' ', 65)

-- Is the caller's version of the rules the one that holds? One that is newer holds from now on.
local function is_current(key, version, writes)
  local known = tonumber(redis.call('GET', key) or 0)
  if known < version and writes then redis.call('SET', key, string.format('%.0f', version)) end
  return known <= version
end
