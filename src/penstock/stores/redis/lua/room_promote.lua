-- PROMOTE: one atomic step for each room: end what is over, drop who is silent, let in as many
-- as slots and rate allow. Reads as many members as there are slots, however many wait.
--
-- KEYS  each room's 13
-- ARGV  1 now · 2 settings of rooms nobody has PUT · 3 limit · 4 … the rooms' names
-- →     each: false (no such room), or { tickets ended, 1 if the limit was met, next moment or
--       -1, now as used, claim_by or -1, (user, lane, number, joined, pass, instance) … }

local now = clamped(tonumber(ARGV[1]))
local default, limit = ARGV[2], tonumber(ARGV[3])

local function attend(r)
  local gone = redis.call('ZRANGEBYSCORE', KEYS[r.b + GONE], '-inf', now, 'LIMIT', 0, limit)
  if #gone > 0 then
    redis.call('HDEL', KEYS[r.b + TICKETS], unpack(gone))
    redis.call('ZREM', KEYS[r.b + GONE], unpack(gone))
  end
  if now - r.attended > OUTAGE_MS then
    r.floor = now
    redis.call('HSET', KEYS[r.b + ROOM], 'floor', now)
  end
  if now - r.attended >= ATTEND_MS then redis.call('HSET', KEYS[r.b + ROOM], 'attended', now) end
end

local function expire(r)
  local over = redis.call('ZRANGEBYSCORE', KEYS[r.b + HELD], '-inf', now, 'LIMIT', 0, limit)
  local silent = {}
  if r.wait_grace and now - r.wait_grace >= r.floor then
    silent = redis.call('ZRANGEBYSCORE', KEYS[r.b + SEEN], '-inf', now - r.wait_grace,
      'LIMIT', 0, limit)
  end
  if #over + #silent == 0 then return 0, 0 end
  local e = ending(r, now)
  for i, packed in ipairs(get_many('HMGET', KEYS[r.b + TICKETS], over)) do
    if packed then
      end_promoted(e, over[i], cmsgpack.unpack(packed), 'X')
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

-- Takes `count` people out of their lanes: users, lanes and scores, in order.
local function take(r, by, count)
  local users, lanes, scores = {}, {}, {}
  if next(r.index) == nil then
    local popped = redis.call('ZPOPMIN', KEYS[r.b + WAITING], count)
    for i = 1, #popped, 2 do
      users[#users + 1], scores[#scores + 1], lanes[#lanes + 1] = popped[i], popped[i + 1], DEFAULT
    end
    return users, lanes, scores
  end
  local order, wanted, popped, at = draw(r, by, count), {}, {}, {}
  for _, lane in ipairs(order) do wanted[lane] = (wanted[lane] or 0) + 1 end
  for lane, n in pairs(wanted) do
    popped[lane], at[lane] = redis.call('ZPOPMIN', lane_key(r, lane), n), 1
  end
  for i, lane in ipairs(order) do
    users[i], scores[i], lanes[i] = popped[lane][at[lane]], popped[lane][at[lane] + 1], lane
    at[lane] = at[lane] + 2
  end
  redis.call('HSET', KEYS[r.b + ROOM], 'shares', cjson.encode(r.shares))
  return users, lanes, scores
end

local function count_flow(r, number)
  if r.flow_since == 0 then r.flow_since = now end
  local passed = math.floor((now - r.flow_since) / WINDOW_MS)
  if passed > 0 then
    r.flow_before = passed == 1 and r.flow_count or 0
    r.flow_count = 0
    r.flow_since = r.flow_since + passed * WINDOW_MS
  end
  r.flow_count = r.flow_count + number
end

local function admit(r, name, all, by, reply)
  local credit = r.rate and earned(r)
  local count = math.min(r.capacity - r.slots, all, limit)
  if credit then count = math.min(count, math.floor(credit / r.per)) end
  if count <= 0 then return 0 end
  local users, lanes, scores = take(r, by, count)
  count = #users
  local b = r.b
  local records = redis.call('HMGET', KEYS[b + RECORDS], unpack(users))
  local seen = redis.call('ZMSCORE', KEYS[b + SEEN], unpack(users))
  redis.call('HDEL', KEYS[b + RECORDS], unpack(users))
  redis.call('HDEL', KEYS[b + USERS], unpack(users))
  redis.call('ZREM', KEYS[b + SEEN], unpack(users))
  local until_ = r.claim_ttl and now + r.claim_ttl or -1
  local promoted_at = string.format('%d', math.floor(now / 1000))
  local before = redis.call('HMGET', KEYS[b + TICKETS], unpack(users))
  local tickets, held, gone, outside = {}, {}, {}, 0
  local again = { A = 0, E = 0 } -- held a slot and were lined up again by another program
  for i, user in ipairs(users) do
    local old = before[i] and cmsgpack.unpack(before[i])
    if old and old[OURS] == 1 then again[old[STATE]] = again[old[STATE]] + 1 end
    local instance, joined = read_record(records[i])
    local number = number_of(scores[i])
    joined = joined or math.floor(number / 1000)
    local ours = (seen[i] or r.expire_outside or (old and old[OURS] == 1)) and 1 or 0
    if not seen[i] and ours == 1 and not (old and old[OURS] == 1) then outside = outside + 1 end
    local pass = redis.call('XADD', KEYS[b + ENTRY], '*', 'userId', user, 'eventId', name,
      'promotedAt', promoted_at, 'instanceId', instance)
    tickets[2 * i - 1] = user
    tickets[2 * i] = cmsgpack.pack({ 'A', lanes[i], number, joined, now,
      ours == 1 and until_ or -1, -1, pass, instance, ours })
    local into = ours == 1 and held or gone
    into[#into + 1] = ours == 1 and (r.claim_ttl and until_ or '+inf') or now + KEEP_OUTSIDE
    into[#into + 1] = user
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = user, lanes[i], number
    reply[n + 4], reply[n + 5], reply[n + 6] = joined, pass, instance
  end
  if redis.call('ZCARD', KEYS[b + GONE]) > 0 then
    redis.call('ZREM', KEYS[b + GONE], unpack(users)) -- somebody who had left and was put back
  end
  redis.call('HSET', KEYS[b + TICKETS], unpack(tickets))
  if #held > 0 then
    redis.call('ZADD', KEYS[b + HELD], unpack(held))
    redis.call('HINCRBY', KEYS[b + ROOM], 'A', #held / 2 - again.A)
  end
  if again.E > 0 then redis.call('HINCRBY', KEYS[b + ROOM], 'E', -again.E) end
  if #gone > 0 then redis.call('ZADD', KEYS[b + GONE], unpack(gone)) end
  if outside > 0 then redis.call('HINCRBY', KEYS[b + ROOM], 'joined', outside) end
  redis.call('HINCRBY', KEYS[b + ROOM], 'promoted', count)
  r.slots = r.slots + count - again.A - again.E -- they keep the slot they have
  count_flow(r, count)
  local fields = { 'flow_since', r.flow_since, 'flow_count', r.flow_count,
    'flow_before', r.flow_before }
  if credit then
    r.credit, r.credit_at = credit - count * r.per, now
    fields[7], fields[8], fields[9], fields[10] = 'credit', r.credit, 'credit_at', now
  end
  redis.call('HSET', KEYS[b + ROOM], unpack(fields))
  return count
end

local function look_at(r, left)
  local at = -1
  local function no_later(moment) if at == -1 or moment < at then at = moment end end
  local held = redis.call('ZRANGE', KEYS[r.b + HELD], 0, 0, 'WITHSCORES')
  if held[2] and held[2] ~= 'inf' then no_later(tonumber(held[2])) end
  if r.wait_grace then
    local seen = redis.call('ZRANGE', KEYS[r.b + SEEN], 0, 0, 'WITHSCORES')
    if seen[2] then no_later(math.max(tonumber(seen[2]), r.floor) + r.wait_grace) end
  end
  if r.state == 'scheduled' and r.opens_at then no_later(r.opens_at) end
  if r.state == 'open' and r.rate and left > 0 and r.slots < r.capacity then
    no_later(now + math.max(0, math.ceil((r.per - earned(r)) / r.rate)))
  end
  return at
end

local function promote(b, name)
  local r = load_room(b, now, default)
  if not r then return false end
  attend(r)
  local over, silent = expire(r)
  local reply = { over + silent, 0, -1, now, r.claim_ttl and now + r.claim_ttl or -1 }
  local by, left = waiting_of(r)
  local admitted = 0
  if r.state == 'open' then
    admitted = admit(r, name, left, by, reply)
    left = left - admitted
  end
  save_slots(r)
  if over == limit or silent == limit or admitted == limit then reply[2] = 1 end
  reply[3] = look_at(r, left)
  return reply
end

local replies = {}
for i = 4, #ARGV do replies[#replies + 1] = promote((i - 4) * KEYS_EACH, ARGV[i]) end
return replies
