-- PROMOTE: one atomic step for each room: end what is over, drop who is silent, let in as many
-- as slots and rate allow. Reads as many members as there are slots, however many wait.
--
-- KEYS  each room's 13
-- ARGV  1 now · 2 settings of rooms nobody has PUT · 3 limit · 4 channel of wake-ups
--       5 … the rooms' names
-- →     each: false (no such room), or { tickets ended, 1 if a limit was met, next moment or -1,
--       { user, ticket … } }
--
-- Numbers that go into many commands are made text once: Redis would format each time anew.

local MOST_A_CALL = 1000 -- people let in by one call: rooms that come after have to ask again
local now = clamped(tonumber(ARGV[1]))
local default, limit, channel = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local now_text = whole(now)
local left_to_admit = MOST_A_CALL

local function attend(r)
  if redis.call('ZCARD', KEYS[r.b + GONE]) > 0 then
    local gone = redis.call('ZRANGEBYSCORE', KEYS[r.b + GONE], '-inf', now_text, 'LIMIT', 0, limit)
    if #gone > 0 then
      redis.call('HDEL', KEYS[r.b + TICKETS], unpack(gone))
      redis.call('ZREM', KEYS[r.b + GONE], unpack(gone))
    end
  end
  if now - r.attended > OUTAGE_MS then
    r.floor = now
    change(r, 'floor', now)
  end
  if now - r.attended >= ATTEND_MS then change(r, 'attended', now) end
end

-- The lowest score of a set of moments, or nil: there is none, or it never comes.
local function first_moment(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if first and first ~= 'inf' then return tonumber(first) end
end

local function expire(r)
  local over, silent = {}, {}
  if r.held and r.held <= now then
    over = redis.call('ZRANGEBYSCORE', KEYS[r.b + HELD], '-inf', now_text, 'LIMIT', 0, limit)
  end
  if r.seen and r.seen <= now - r.wait_grace and now - r.wait_grace >= r.floor then
    silent = redis.call('ZRANGEBYSCORE', KEYS[r.b + SEEN], '-inf', whole(now - r.wait_grace),
      'LIMIT', 0, limit)
  end
  if #over + #silent == 0 then return 0, 0 end
  local e = ending(r, now)
  for i, packed in ipairs(get_many('HMGET', KEYS[r.b + TICKETS], over)) do
    if packed then
      end_promoted(e, over[i], unpack_ticket(packed), 'X')
    else
      redis.call('ZREM', KEYS[r.b + HELD], over[i])
      e.inside = e.inside - 1
    end
  end
  local records = get_many('HMGET', KEYS[r.b + RECORDS], silent)
  for i, user in ipairs(silent) do
    local lane, score = find_waiting(r, user)
    if lane then
      end_waiting(e, user, lane, score, records[i], true, 'X')
    else
      redis.call('ZREM', KEYS[r.b + SEEN], user) -- another program took the user out
      redis.call('HINCRBY', KEYS[r.b + ROOM], 'joined', -1)
    end
  end
  save_ended(e)
  r.admitted = r.admitted + (e.counts.A or 0)
  r.held = first_moment(KEYS[r.b + HELD])
  return #over, #silent
end

local function earned(r)
  local full = math.max(1, math.floor(r.rate * BURST_MS / r.per)) * r.per
  if now <= r.credit_at then return math.min(r.credit, full) end
  local enough = math.floor(full / r.rate) + 1
  return math.min(full, r.credit + math.min(now - r.credit_at, enough) * r.rate)
end

-- Which lane each of `count` people is taken from, in order: stride scheduling.
local function draw(r, by, count)
  local shares, names, order = r.shares, { DEFAULT }, {}
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
  return order
end

-- The next `count` people: users and their lanes, in order, and how many of each lane.
local function first_in_line(r, by, count)
  if next(r.index) == nil then
    local users, lanes = redis.call('ZRANGE', KEYS[r.b + WAITING], 0, count - 1), {}
    for i = 1, #users do lanes[i] = DEFAULT end
    return users, lanes, { [DEFAULT] = #users }
  end
  local order, wanted, heads, at, users = draw(r, by, count), {}, {}, {}, {}
  for _, lane in ipairs(order) do wanted[lane] = (wanted[lane] or 0) + 1 end
  for lane, n in pairs(wanted) do
    heads[lane], at[lane] = redis.call('ZRANGE', lane_key(r, lane), 0, n - 1), 0
  end
  for i, lane in ipairs(order) do
    at[lane] = at[lane] + 1
    users[i] = heads[lane][at[lane]]
  end
  change(r, 'shares', cjson.encode(r.shares))
  return users, order, wanted
end

local function count_flow(r, number)
  local since = r.flow_since
  if since == 0 then r.flow_since = now end
  local passed = math.floor((now - r.flow_since) / WINDOW_MS)
  if passed > 0 then
    r.flow_before = passed == 1 and r.flow_count or 0
    r.flow_count = 0
    r.flow_since = r.flow_since + passed * WINDOW_MS
  end
  r.flow_count = r.flow_count + number
  change(r, 'flow_count', r.flow_count)
  if r.flow_since ~= since then
    change(r, 'flow_since', r.flow_since)
    change(r, 'flow_before', r.flow_before)
  end
end

-- What the line knows of these users, who are taken out of all of it but their lanes.
local function forget_line(b, users)
  local records = redis.call('HMGET', KEYS[b + RECORDS], unpack(users))
  local seen = redis.call('ZMSCORE', KEYS[b + SEEN], unpack(users))
  redis.call('HDEL', KEYS[b + RECORDS], unpack(users))
  redis.call('HDEL', KEYS[b + USERS], unpack(users))
  redis.call('ZREM', KEYS[b + SEEN], unpack(users))
  return records, seen
end

-- How each lane's tickets of this step begin: those whose slot is ours, and those of others.
local function ticket_heads(r, claim_by)
  local own, other = {}, {}
  local function head(lane)
    own[lane] = table.concat({ '!' .. lane, now_text, claim_by, '1', '' }, '\0')
    other[lane] = table.concat({ '!' .. lane, now_text, '-1', '0', '' }, '\0')
  end
  head(DEFAULT)
  for lane in pairs(r.index) do head(lane) end
  return own, other
end

-- Everybody's instance, and the scores of those whose records do not tell their place.
local function read_line(r, users, lanes, records)
  local instances, scores = {}, {}
  for i, user in ipairs(users) do
    local instance, placed = instance_of(records[i])
    instances[i], scores[i] = instance, ''
    if not placed then scores[i] = redis.call('ZSCORE', lane_key(r, lanes[i]), user) end
  end
  return instances, scores
end

local function admit(r, name, users, lanes, wanted)
  local b = r.b
  local records, seen = forget_line(b, users)
  local instances, scores = read_line(r, users, lanes, records)
  for lane, n in pairs(wanted) do redis.call('ZREMRANGEBYRANK', lane_key(r, lane), 0, n - 1) end
  local before = redis.call('HMGET', KEYS[b + TICKETS], unpack(users))
  local claim_by = r.claim_ttl and now + r.claim_ttl
  local held_until, forget_at = claim_by and whole(claim_by) or '+inf', whole(now + KEEP_OUTSIDE)
  local promoted_at = whole(math.floor(now / 1000))
  local own, other = ticket_heads(r, claim_by and held_until or '-1')
  local tickets, held, gone, back, outside = {}, {}, {}, {}, 0
  local again = { A = 0, E = 0 } -- held a slot and were lined up again by another program
  for i, user in ipairs(users) do
    local old = before[i] and unpack_ticket(before[i])
    if old then
      back[#back + 1] = user
      if old[OURS] == 1 then again[old[STATE]] = again[old[STATE]] + 1 else old = nil end
    end
    local record, head = records[i], other[lanes[i]]
    local pass = redis.call('XADD', KEYS[b + ENTRY], '*', 'userId', user, 'eventId', name,
      'promotedAt', promoted_at, 'instanceId', instances[i])
    if seen[i] or r.expire_outside or old then
      if not seen[i] and not old then outside = outside + 1 end
      head = own[lanes[i]]
      held[#held + 1] = held_until
      held[#held + 1] = user
    else
      gone[#gone + 1] = forget_at
      gone[#gone + 1] = user
    end
    tickets[2 * i - 1] = user
    tickets[2 * i] = head .. pass .. '\0' .. scores[i] .. '\0'
      .. (record or '')
  end
  call_many('ZREM', KEYS[b + GONE], back, 1) -- those who had left and were put back
  redis.call('HSET', KEYS[b + TICKETS], unpack(tickets))
  if #held > 0 then
    redis.call('ZADD', KEYS[b + HELD], unpack(held))
    change(r, 'A', r.admitted + #held / 2 - again.A)
    if claim_by and (not r.held or claim_by < r.held) then r.held = claim_by end
  end
  if again.A + again.E > 0 then r.held = first_moment(KEYS[b + HELD]) end
  if again.E > 0 then redis.call('HINCRBY', KEYS[b + ROOM], 'E', -again.E) end
  if #gone > 0 then redis.call('ZADD', KEYS[b + GONE], unpack(gone)) end
  if outside > 0 then redis.call('HINCRBY', KEYS[b + ROOM], 'joined', outside) end
  r.slots = r.slots + #users - again.A - again.E -- they keep the slot they have
  redis.call('PUBLISH', channel, '\0' .. name .. '\0' .. table.concat(users, '\0'))
  return tickets
end

-- As many as slots and rate allow: how many, and users with their tickets.
local function let_in(r, name, all, by)
  if r.state ~= 'open' then return 0, {} end
  local credit = r.rate and earned(r)
  local count = math.min(r.capacity - r.slots, all, limit)
  if credit then count = math.min(count, math.floor(credit / r.per)) end
  if count <= 0 then return 0, {} end
  local users, lanes, wanted = first_in_line(r, by, count)
  count = #users
  local tickets = admit(r, name, users, lanes, wanted)
  if credit then
    r.credit, r.credit_at = credit - count * r.per, now
    change(r, 'credit', r.credit)
    change(r, 'credit_at', now)
  end
  change(r, 'promoted', r.promoted + count)
  count_flow(r, count)
  return count, tickets
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
  if left_to_admit <= 0 then return { 0, 1, -1, {} } end
  local r = load_room(b, now, default)
  if not r then return false end
  attend(r)
  r.held = first_moment(KEYS[b + HELD])
  r.seen = r.wait_grace and first_moment(KEYS[b + SEEN])
  local over, silent = expire(r)
  local by, left = waiting_of(r)
  local admitted, tickets = let_in(r, name, left, by)
  left_to_admit = left_to_admit - admitted
  save_slots(r)
  local more = over == limit or silent == limit or admitted == limit
  local at = look_at(r, left - admitted, over + silent + admitted > 0)
  save_changes(r)
  return { over + silent, more and 1 or 0, at, tickets }
end

local replies = {}
for i = 5, #ARGV do replies[#replies + 1] = promote((i - 5) * KEYS_EACH, ARGV[i]) end
return replies
