-- PROMOTE: one atomic step for each room: end expired tickets, drop silent waiters, admit as many
-- as slots and rate allow. Reads as many members as there are slots, however many wait; members
-- whose record has not come yet are passed over for a while, and those behind them are read.
-- A copy of `penstock.model.room_steps.promote`.
--
-- KEYS  each room's 15
-- ARGV  1 now · 2 settings of rooms that were never PUT ('': such rooms are left alone) · 3 limit
--       4 channel of wake-ups
--       5 … the rooms' names
-- →     each: false (no such room), or { tickets ended, 1 if a limit was met, next moment or -1,
--       how many were let in, and if any: the lengths of user, ticket … (4 bytes each, the lowest
--       first), and these texts in a row }
--
-- It runs for every admitted visitor: numbers that go into many commands are made text once,
-- and features most rooms lack (lanes, a rate, members of other programs) cost them nothing.
-- @include stores/redis/rooms/common.lua

local MOST_A_CALL = 1000 -- people let in by one call: rooms that come after have to ask again
local RECORD_GRACE_MS = 2000 -- a member without a record is passed over for this long
local SET_BACK = 5000 -- penstock.model.room_admission.SET_BACK_MS
local SCAN_MOST, SCAN_STEP = 20000, 500 -- members read at most to find those who may go
local MARK_MOST, MARK_EVERY_MS = 5000, 1000 -- members looked at ahead of their turn
local LATE_RECORD_MS, LATE_USER_MS, LATE_STEP = 600000, 60000, 1000
local now = clamped(tonumber(ARGV[1]))
local default, limit, channel = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local now_text = whole(now)
local forget_at = whole(now + KEEP_OUTSIDE)
local left_to_admit = MOST_A_CALL

local function attend(r)
  local gone_key = KEYS[r.b + GONE]
  if call('ZCARD', gone_key) > 0 then
    local gone = call('ZRANGEBYSCORE', gone_key, '-inf', now_text, 'LIMIT', 0, limit)
    if #gone > 0 then
      call('HDEL', KEYS[r.b + TICKETS], unpack(gone))
      call('ZREM', gone_key, unpack(gone))
    end
  end
  local unattended = now - r.attended
  if unattended >= ATTEND_MS then change(r, 'attended', now_text) end
  if unattended > OUTAGE_MS then
    r.floor = now
    change(r, 'floor', now_text)
  end
end

-- Removes records that came after their users had gone without them. A record that says that its
-- user joined after that is the next visit's.
local function remove_late(r)
  local b, key = r.b, KEYS[r.b + LATE]
  if call('EXISTS', key) == 0 then return end
  call('ZREMRANGEBYSCORE', key, '-inf', now_text)
  if call('EXISTS', KEYS[b + RECORDS], KEYS[b + USERS]) == 0 then return end
  local from = tonumber(call('HGET', KEYS[b + ROOM], 'late_at') or 0)
  local users = call('ZRANGE', key, from, from + LATE_STEP - 1)
  local following = #users < LATE_STEP and 0 or from + LATE_STEP
  if following ~= from then change(r, 'late_at', whole(following)) end
  if #users == 0 then return end
  local records = call('HMGET', KEYS[b + RECORDS], unpack(users))
  local lanes = call('HMGET', KEYS[b + USERS], unpack(users))
  for i, user in ipairs(users) do
    if (records[i] or lanes[i]) and not find_waiting(r, user) then
      local packed = call('HGET', KEYS[b + TICKETS], user)
      local _, joined = read_record(records[i])
      if not (joined and packed and joined > unpack_ticket(packed)[PROMOTED]) then
        call('HDEL', KEYS[b + RECORDS], user)
        call('HDEL', KEYS[b + USERS], user)
      end
    end
  end
end

-- The lowest score of a set of moments, or nil: there is none, or it is infinite.
local function first_moment(key)
  local first = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]
  if first and first ~= 'inf' then return tonumber(first) end
end

local function end_over(r, over, silent)
  local e = ending(r, now)
  for i, packed in ipairs(get_many('HMGET', KEYS[r.b + TICKETS], over)) do
    if packed then
      end_promoted(e, over[i], unpack_ticket(packed), 'X')
    else
      call('ZREM', KEYS[r.b + HELD], over[i])
      e.inside = e.inside - 1
    end
  end
  local records = get_many('HMGET', KEYS[r.b + RECORDS], silent)
  for i, user in ipairs(silent) do
    local lane, score = find_waiting(r, user)
    if lane then
      end_waiting(e, user, lane, score, records[i], true, 'X')
    else
      -- Another program removed the user: delete our entries, keep the program's changes.
      call('ZREM', KEYS[r.b + SEEN], user)
      local _, placed = instance_of(records[i])
      if placed then call('HDEL', KEYS[r.b + RECORDS], user) end
      call('HINCRBY', KEYS[r.b + ROOM], 'joined', -1)
    end
  end
  save_ended(e)
  r.admitted = r.admitted + (e.counts.A or 0)
  r.held = first_moment(KEYS[r.b + HELD])
end

-- Ends expired tickets; returns how many held a slot and how many waited.
local function expire(r)
  local over, silent = {}, {}
  if r.held and r.held <= now then
    over = call('ZRANGEBYSCORE', KEYS[r.b + HELD], '-inf', now_text, 'LIMIT', 0, limit)
  end
  local cutoff = r.wait_grace and now - r.wait_grace
  if r.seen and r.seen <= cutoff and cutoff >= r.floor then
    silent = call('ZRANGEBYSCORE', KEYS[r.b + SEEN], '-inf', whole(cutoff), 'LIMIT', 0, limit)
  end
  if #over + #silent > 0 then end_over(r, over, silent) end
  return #over, #silent
end

local function earned(r)
  if not r.credit then
    local kept = call('HMGET', KEYS[r.b + ROOM], 'credit', 'credit_at')
    r.credit, r.credit_at = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
  end
  local credit, since = r.credit, r.credit_at
  local full = math.max(1, math.floor(r.rate * BURST_MS / r.per)) * r.per
  if now <= since and since - now <= SET_BACK then return math.min(credit, full) end
  local enough = math.floor(full / r.rate) + 1
  return math.min(full, credit + math.min(math.abs(now - since), enough) * r.rate)
end

-- Which lane each of `count` people is taken from, in order: stride scheduling.
local function draw(r, by, count)
  local kept = call('HGET', KEYS[r.b + ROOM], 'shares')
  local shares = kept and cjson.decode(kept) or { at = 0, passes = {} }
  local names, order = { DEFAULT }, {}
  for lane in pairs(r.index) do names[#names + 1] = lane end
  table.sort(names) -- decides between equals
  while #order < count do
    local best, best_pass
    for _, lane in ipairs(names) do
      local passed = math.max(shares.passes[lane] or 0, shares.at)
      if by[lane] > 0 and (not best or passed < best_pass) then best, best_pass = lane, passed end
    end
    if not best then break end
    shares.at = best_pass
    shares.passes[best] = best_pass + math.floor(STRIDE / r.weights[best])
    by[best] = by[best] - 1
    order[#order + 1] = best
  end
  change(r, 'shares', cjson.encode(shares))
  return order
end

-- Members and their scores, from a reply that alternates them.
local function split(found)
  local users, scores = {}, {}
  for i = 1, #found, 2 do
    local n = #users + 1
    users[n], scores[n] = found[i], found[i + 1]
  end
  return users, scores
end

-- When each of these members was first found without a record, which is noted. A member with
-- another score has lined up anew.
local function found_unrecorded(r, users, scores)
  local key, new, moments = KEYS[r.b + UNRECORDED], {}, {}
  for i, noted in ipairs(call('HMGET', key, unpack(users))) do
    local at, score = string.match(noted or '', '^(%d+) (.*)$')
    if score ~= scores[i] then
      at = now_text
      new[#new + 1], new[#new + 2] = users[i], now_text .. ' ' .. scores[i]
    end
    moments[i] = tonumber(at)
  end
  if new[1] then
    call('HSET', key, unpack(new))
    call('PEXPIRE', key, KEEP_OUTSIDE)
  end
  return moments
end

-- The members' records, and for those without one the moment when that was first found.
local function records_of(r, users, scores)
  local records, bare, bare_scores = call('HMGET', KEYS[r.b + RECORDS], unpack(users)), {}, {}
  for i = 1, #users do
    if not records[i] then bare[#bare + 1], bare_scores[#bare + 1] = users[i], scores[i] end
  end
  local since = {}
  if bare[1] then
    for i, at in ipairs(found_unrecorded(r, bare, bare_scores)) do since[bare[i]] = at end
  end
  return records, since
end

-- Those of the members who may go, into `line`, until it has `count`; the others are passed over.
local function choose(r, line, count, users, scores)
  local records, since = records_of(r, users, scores)
  local n = #line.users
  for i = 1, #users do
    if n == count then return end
    local due = since[users[i]] and since[users[i]] + RECORD_GRACE_MS
    if due and due > now then
      line.passed_over = line.passed_over + 1
      if not r.record_due or due < r.record_due then r.record_due = due end
    else
      n = n + 1
      line.users[n], line.scores[n], line.records[n] = users[i], scores[i], records[i]
    end
  end
end

-- The first `count` of the default lane who may go.
local function first_who_may_go(r, count)
  local line = { users = {}, scores = {}, records = {}, passed_over = 0 }
  local from, width = 0, count
  while #line.users < count and from < SCAN_MOST do
    local users, scores = split(call('ZRANGE', KEYS[r.b + WAITING], from, from + width - 1,
      'WITHSCORES'))
    if users[1] then choose(r, line, count, users, scores) end
    if #users < width then return line end
    from, width = from + width, SCAN_STEP
  end
  line.unread = #line.users < count
  return line
end

-- The next `count` people of all lanes in order.
local function first_of_lanes(r, by, count)
  local line = first_who_may_go(r, count)
  local heads, at, wanted = { [DEFAULT] = { line.users, line.scores } }, {}, {}
  by[DEFAULT] = #line.users
  local order = draw(r, by, count)
  for _, lane in ipairs(order) do wanted[lane] = (wanted[lane] or 0) + 1 end
  for lane, n in pairs(wanted) do
    at[lane] = 0
    if lane ~= DEFAULT then
      heads[lane] = { split(call('ZRANGE', lane_key(r, lane), 0, n - 1, 'WITHSCORES')) }
    end
  end
  line.users, line.scores, line.lanes, line.wanted = {}, {}, order, wanted
  for i, lane in ipairs(order) do
    at[lane] = at[lane] + 1
    line.users[i], line.scores[i] = heads[lane][1][at[lane]], heads[lane][2][at[lane]]
  end
  if order[1] then line.records = call('HMGET', KEYS[r.b + RECORDS], unpack(line.users)) end
  return line
end

-- Members far from their turn whose record is missing are noted ahead of it, so that a slot that
-- becomes free does not wait for them.
local function mark_ahead(r)
  local _, all = waiting_of(r)
  if r.state ~= 'open' or call('HLEN', KEYS[r.b + RECORDS]) >= all then return end
  local marked = tonumber(call('HGET', KEYS[r.b + ROOM], 'marked') or 0)
  if now - marked < MARK_EVERY_MS then return end
  change(r, 'marked', now_text)
  local most = math.min(r.capacity, MARK_MOST)
  for from = 0, most - 1, SCAN_STEP do
    local users, scores = split(call('ZRANGE', KEYS[r.b + WAITING], from,
      math.min(from + SCAN_STEP, most) - 1, 'WITHSCORES'))
    if not users[1] then return end
    records_of(r, users, scores)
  end
end

local function count_flow(r, number)
  local since, running = tonumber(r.flow_since), r.flow_count
  local passed = math.floor((now - since) / WINDOW_MS)
  if since == 0 then
    change(r, 'flow_since', now_text)
  elseif passed > 0 then
    change(r, 'flow_since', whole(since + passed * WINDOW_MS))
    change(r, 'flow_before', passed == 1 and running or '0')
    running = 0
  end
  change(r, 'flow_count', whole(running + number))
end

-- How the tickets of a lane begin: those whose slot is ours, and those of other programs. Rooms of
-- one call have much in common.
local heads = {}
local function ticket_heads(lane, claim_by)
  local key = lane .. '\0' .. claim_by
  if not heads[key] then
    heads[key] = { '!' .. lane .. '\0' .. now_text .. '\0' .. claim_by .. '\0' .. '1\0',
      '!' .. lane .. '\0' .. now_text .. '\0-1\0' .. '0\0' }
  end
  return heads[key][1], heads[key][2]
end

-- The entries to write for admitted visitors, reused from room to room.
local tickets, lengths, held, gone, late = {}, {}, {}, {}, {}
-- The admitted visitors by room, published together at the end.
local news = {}

-- What is to be known of somebody who does not come from our own line alone: a sign of life, the
-- ticket there was, if its slot is ours.
local function look_closer(r, user, packed, again)
  local seen = call('ZSCORE', KEYS[r.b + SEEN], user)
  local old = packed and unpack_ticket(packed)
  if not old then return seen, nil end
  call('ZREM', KEYS[r.b + GONE], user) -- had left, and was put back
  if old[OURS] ~= 1 then return seen, nil end
  again[old[STATE]] = again[old[STATE]] + 1
  return seen, old
end

-- Notes whose record, or entry in the users, is still to come from the program that lined them up.
local function note_late(done, user, record, noted)
  if record and noted then return end
  local n = done.late
  late[n + 1], late[n + 2] = whole(now + (record and LATE_USER_MS or LATE_RECORD_MS)), user
  done.late = n + 2
end

-- Writes an entry and a ticket for each, and notes whose slot is ours.
local function hand_out(r, name, line, claim_by)
  local b, entry = r.b, KEYS[r.b + ENTRY]
  local users, scores, lanes = line.users, line.scores, line.lanes
  local before = call('HMGET', KEYS[b + TICKETS], unpack(users))
  local done = { held = 0, gone = 0, late = 0, ours = 0, outside = 0, A = 0, E = 0 }
  local held_until = claim_by == '-1' and '+inf' or claim_by
  local lane, own, other, noted
  for i = 1, #users do
    local user, record, next_lane = users[i], line.records[i], lanes and lanes[i] or DEFAULT
    if next_lane ~= lane then
      lane = next_lane
      own, other = ticket_heads(lane, claim_by)
    end
    local instance, placed = instance_of(record)
    local score, ours, old = '', true, nil
    if not placed then
      noted = noted or call('HMGET', KEYS[b + USERS], unpack(users))
      note_late(done, user, record, noted[i])
      score = scores[i]
    end
    if not placed or before[i] then ours, old = look_closer(r, user, before[i], done) end
    local pass = call('XADD', entry, '*', 'userId', user, 'eventId', name, 'promotedAt',
      scores[i], 'instanceId', instance)
    local head = own
    if ours or old or r.expire_outside then
      local n = done.held
      held[n + 1], held[n + 2], done.held = held_until, user, n + 2
      if ours then
        done.ours = done.ours + 1
      elseif not old then
        done.outside = done.outside + 1
      end
    else
      local n = done.gone
      head, gone[n + 1], gone[n + 2], done.gone = other, forget_at, user, n + 2
    end
    local ticket = head .. pass .. '\0' .. score .. '\0' .. (record or '')
    tickets[2 * i - 1], tickets[2 * i] = user, ticket
    lengths[2 * i - 1], lengths[2 * i] = #user, #ticket
  end
  return done
end

-- Removes them from the line; visitors who were passed over stay ahead of later ones.
local function take_out(r, line)
  local waiting, passed_over = KEYS[r.b + WAITING], line.passed_over > 0
  for lane, n in pairs(line.wanted or { [DEFAULT] = #line.users }) do
    if passed_over and lane == DEFAULT then
      call('ZREM', waiting, unpack(line.users)) -- members of other lanes are not in it
    else
      call('ZREMRANGEBYRANK', lane_key(r, lane), '0', n - 1)
    end
  end
end

-- They are out of the line, all of it. How many had given us a sign of life.
local function forget_line(r, line)
  local b, users = r.b, line.users
  take_out(r, line)
  call('HDEL', KEYS[b + RECORDS], unpack(users))
  call('HDEL', KEYS[b + USERS], unpack(users))
  if call('EXISTS', KEYS[b + UNRECORDED]) == 1 then
    call('HDEL', KEYS[b + UNRECORDED], unpack(users))
  end
  return call('ZREM', KEYS[b + SEEN], unpack(users))
end

-- They are inside.
local function admit(r, name, line)
  local b, n = r.b, #line.users
  local claim_by = r.claim_ttl and now + r.claim_ttl
  local done = hand_out(r, name, line, claim_by and whole(claim_by) or '-1')
  local seen = forget_line(r, line)
  call('HSET', KEYS[b + TICKETS], unpack(tickets, 1, 2 * n))
  if done.held > 0 then
    call('ZADD', KEYS[b + HELD], unpack(held, 1, done.held))
    change(r, 'A', whole(r.admitted + done.held / 2 - done.A))
    if claim_by and (not r.held or claim_by < r.held) then r.held = claim_by end
  end
  if done.gone > 0 then call('ZADD', KEYS[b + GONE], unpack(gone, 1, done.gone)) end
  if done.late > 0 then call('ZADD', KEYS[b + LATE], unpack(late, 1, done.late)) end
  -- Ours that are not counted as joined: another program has put them back with the record we made.
  local uncounted = done.outside + math.max(0, done.ours - seen)
  if uncounted > 0 then call('HINCRBY', KEYS[b + ROOM], 'joined', uncounted) end
  local again = done.A + done.E -- another program lined them up: they keep the slot they have
  r.slots = r.slots + n - again
  if again > 0 then r.held = first_moment(KEYS[b + HELD]) end
  if done.E > 0 then call('HINCRBY', KEYS[b + ROOM], 'E', -done.E) end
  news[#news + 1] = name .. '\0' .. table.concat(line.users, '\0')
end

-- As many as slots and rate allow: how many, and how many wait on, if it is the rate that may keep
-- them. Their tickets are in `tickets` then. Nobody is counted where neither rate nor lanes ask.
local function let_in(r, name)
  local count = math.min(r.capacity - r.slots, limit)
  if r.state ~= 'open' or count <= 0 then return 0, 0 end
  local in_lanes, credit, by, all = next(r.index), nil, nil, 0
  if in_lanes or r.rate then
    by, all = waiting_of(r)
    count = math.min(count, all)
  end
  if r.rate then
    credit = earned(r)
    count = math.min(count, math.floor(credit / r.per))
  end
  if count <= 0 then return 0, all end
  local line = in_lanes and first_of_lanes(r, by, count) or first_who_may_go(r, count)
  all = line.unread and 0 or all - line.passed_over -- time lets those in, not the rate
  count = #line.users
  if count == 0 then return 0, all end
  admit(r, name, line)
  if credit then
    r.credit, r.credit_at = credit - count * r.per, now
    change(r, 'credit', whole(r.credit))
    change(r, 'credit_at', now_text)
  end
  change(r, 'promoted', whole(r.promoted + count))
  count_flow(r, count)
  return count, math.max(0, all - count)
end

local function look_at(r, left, changed)
  local at = r.held or -1
  local function no_later(moment) if at == -1 or moment < at then at = moment end end
  if r.wait_grace then
    if changed then r.seen = first_moment(KEYS[r.b + SEEN]) end
    if r.seen then no_later(math.max(r.seen, r.floor) + r.wait_grace) end
  end
  if r.state == 'scheduled' and r.opens_at then no_later(r.opens_at) end
  if r.record_due and r.slots < r.capacity then no_later(r.record_due) end
  if r.state == 'open' and r.rate and left > 0 and r.slots < r.capacity then
    no_later(now + math.max(0, math.ceil((r.per - earned(r)) / r.rate)))
  end
  return at
end

local function promote(b, name)
  if left_to_admit <= 0 then return { 0, 1, -1, 0 } end
  local r = load_room(b, now, default)
  if not r then return false end
  attend(r)
  remove_late(r)
  r.held = first_moment(KEYS[b + HELD])
  r.seen = r.wait_grace and first_moment(KEYS[b + SEEN])
  local over, silent = expire(r)
  local admitted, left = let_in(r, name)
  left_to_admit = left_to_admit - admitted
  mark_ahead(r)
  save_slots(r)
  local more = over == limit or silent == limit or admitted == limit
  local at = look_at(r, left, over + silent + admitted > 0)
  save_changes(r)
  if admitted == 0 then return { over + silent, more and 1 or 0, at, 0 } end
  local n = 2 * admitted
  return { over + silent, more and 1 or 0, at, admitted,
    struct.pack('<' .. string.rep('I4', n), unpack(lengths, 1, n)), table.concat(tickets, '', 1, n) }
end

local replies = {}
for i = 5, #ARGV do replies[#replies + 1] = promote((i - 5) * KEYS_EACH, ARGV[i]) end
if news[1] then call('PUBLISH', channel, '\0' .. table.concat(news, '\0\0')) end
return replies
