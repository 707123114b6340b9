-- PROMOTE: one atomic step for each room: end what is over, drop who is silent, let in as many
-- as slots and rate allow. Reads as many members as there are slots, however many wait.
--
-- KEYS  each room's 13
-- ARGV  1 now · 2 settings of rooms nobody has PUT · 3 limit · 4 channel of wake-ups
--       5 … the rooms' names
-- →     each: false (no such room), or { tickets ended, 1 if a limit was met, next moment or -1,
--       how many were let in, and if any: the lengths of user, ticket … (4 bytes each, the lowest
--       first), and these texts in a row }
--
-- It runs for everybody who is ever let in: numbers that go into many commands are made text once,
-- and what most rooms do not have (lanes, a rate, members of other programs) costs them nothing.

local MOST_A_CALL = 1000 -- people let in by one call: rooms that come after have to ask again
local now = clamped(tonumber(ARGV[1]))
local default, limit, channel = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local now_text, promoted_at = whole(now), whole(math.floor(now / 1000))
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

-- The lowest score of a set of moments, or nil: there is none, or it never comes.
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
      -- Another program took the user out: what we noted goes, what the program did stays.
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

-- Ends what is over: how many held a slot, how many waited.
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
  if now <= since then return math.min(credit, full) end
  local enough = math.floor(full / r.rate) + 1
  return math.min(full, credit + math.min(now - since, enough) * r.rate)
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

-- The next `count` people in order, who are out of their lanes then, and each one's lane (nil: all
-- of the default one) and score.
local function first_in_line(r, by, count)
  local order, wanted, heads, at, users = draw(r, by, count), {}, {}, {}, {}
  for _, lane in ipairs(order) do wanted[lane] = (wanted[lane] or 0) + 1 end
  for lane, n in pairs(wanted) do
    heads[lane], at[lane] = call('ZRANGE', lane_key(r, lane), 0, n - 1), 0
  end
  for i, lane in ipairs(order) do
    at[lane] = at[lane] + 1
    users[i] = heads[lane][at[lane]]
  end
  return users, order, wanted
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

-- What is written of everybody who is let in, room after room: tables that have grown once.
local tickets, lengths, held, gone = {}, {}, {}, {}
-- Who was let in where, told all together in the end.
local news = {}

-- What is to be known of somebody who does not come from our own line alone: the score, a sign of
-- life, the ticket there was, if its slot is ours.
local function look_closer(r, user, lane, packed, again)
  local score = call('ZSCORE', lane_key(r, lane), user)
  local seen = call('ZSCORE', KEYS[r.b + SEEN], user)
  local old = packed and unpack_ticket(packed)
  if not old then return score, seen, nil end
  call('ZREM', KEYS[r.b + GONE], user) -- had left, and was put back
  if old[OURS] ~= 1 then return score, seen, nil end
  again[old[STATE]] = again[old[STATE]] + 1
  return score, seen, old
end

-- Writes an entry and a ticket for each, and notes whose slot is ours.
local function hand_out(r, name, users, lanes, claim_by)
  local b, entry = r.b, KEYS[r.b + ENTRY]
  local records = call('HMGET', KEYS[b + RECORDS], unpack(users))
  local before = call('HMGET', KEYS[b + TICKETS], unpack(users))
  local done = { held = 0, gone = 0, ours = 0, outside = 0, A = 0, E = 0 }
  local held_until = claim_by == '-1' and '+inf' or claim_by
  local lane, own, other
  for i = 1, #users do
    local user, record, next_lane = users[i], records[i], lanes and lanes[i] or DEFAULT
    if next_lane ~= lane then
      lane = next_lane
      own, other = ticket_heads(lane, claim_by)
    end
    local instance, placed = instance_of(record)
    local score, ours, old = '', true, nil
    if not placed or before[i] then
      score, ours, old = look_closer(r, user, lane, before[i], done)
      if placed then score = '' end
    end
    local pass = call('XADD', entry, '*', 'userId', user, 'eventId', name, 'promotedAt',
      promoted_at, 'instanceId', instance)
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

-- They are out of the line, all of it. How many had given us a sign of life.
local function forget_line(r, users, wanted)
  local b = r.b
  if wanted then
    for lane, n in pairs(wanted) do call('ZREMRANGEBYRANK', lane_key(r, lane), '0', n - 1) end
  else
    call('ZREMRANGEBYRANK', KEYS[b + WAITING], '0', #users - 1)
  end
  call('HDEL', KEYS[b + RECORDS], unpack(users))
  call('HDEL', KEYS[b + USERS], unpack(users))
  return call('ZREM', KEYS[b + SEEN], unpack(users))
end

-- They are inside.
local function admit(r, name, users, lanes, wanted)
  local b, n = r.b, #users
  local claim_by = r.claim_ttl and now + r.claim_ttl
  local done = hand_out(r, name, users, lanes, claim_by and whole(claim_by) or '-1')
  local seen = forget_line(r, users, wanted)
  call('HSET', KEYS[b + TICKETS], unpack(tickets, 1, 2 * n))
  if done.held > 0 then
    call('ZADD', KEYS[b + HELD], unpack(held, 1, done.held))
    change(r, 'A', whole(r.admitted + done.held / 2 - done.A))
    if claim_by and (not r.held or claim_by < r.held) then r.held = claim_by end
  end
  if done.gone > 0 then call('ZADD', KEYS[b + GONE], unpack(gone, 1, done.gone)) end
  -- Ours that are not counted as joined: another program has put them back with the record we made.
  local uncounted = done.outside + math.max(0, done.ours - seen)
  if uncounted > 0 then call('HINCRBY', KEYS[b + ROOM], 'joined', uncounted) end
  local again = done.A + done.E -- another program lined them up: they keep the slot they have
  r.slots = r.slots + n - again
  if again > 0 then r.held = first_moment(KEYS[b + HELD]) end
  if done.E > 0 then call('HINCRBY', KEYS[b + ROOM], 'E', -done.E) end
  news[#news + 1] = name .. '\0' .. table.concat(users, '\0')
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
  local users, lanes, wanted
  if in_lanes then
    users, lanes, wanted = first_in_line(r, by, count)
  else
    users = call('ZRANGE', KEYS[r.b + WAITING], '0', count - 1)
  end
  count = #users
  if count == 0 then return 0, 0 end
  admit(r, name, users, lanes, wanted)
  if credit then
    r.credit, r.credit_at = credit - count * r.per, now
    change(r, 'credit', whole(r.credit))
    change(r, 'credit_at', now_text)
  end
  change(r, 'promoted', whole(r.promoted + count))
  count_flow(r, count)
  return count, all - count
end

local function look_at(r, left, changed)
  local at = r.held or -1
  local function no_later(moment) if at == -1 or moment < at then at = moment end end
  if r.wait_grace then
    if changed then r.seen = first_moment(KEYS[r.b + SEEN]) end
    if r.seen then no_later(math.max(r.seen, r.floor) + r.wait_grace) end
  end
  if r.state == 'scheduled' and r.opens_at then no_later(r.opens_at) end
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
  r.held = first_moment(KEYS[b + HELD])
  r.seen = r.wait_grace and first_moment(KEYS[b + SEEN])
  local over, silent = expire(r)
  local admitted, left = let_in(r, name)
  left_to_admit = left_to_admit - admitted
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
