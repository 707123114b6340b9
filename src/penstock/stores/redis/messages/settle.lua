-- SETTLE: end leases by what came of the send; a token that is not current changes nothing.
--
-- KEYS  a group: records, leases, tokens, grants, counters, settled, index by key, unused pointers,
--       then the lanes, buckets, indexes, dead letters, lines, turns and busy its plan points at
-- ARGV  1 groups (msgpack): { first key, first argument, number of delivered,
--         runs = { { token, how many of the delivered in a row are its, decision that they keep
--           (packed) or false } … },
--         others = { { id, token, state, 1 if no send was begun, due or false, error or false,
--           word or false, detail or false, refusal (packed) or false, what let it go or false,
--           counter, key, index or false, entry or score, member } … },
--         turns = { route → key of its line, before those of its turns and busy } or false,
--         entries = { { stream, maximal length or false, names and values } or false … } of the
--           delivered, or false: added to its stream before the message is settled }
--         A message that goes back: `key` is its lane (`entry` its score) or, with an index, its
--         bucket. A dead one: `key` is the dead letters of its route.
--       2 now · 3 nonce of this call (4 bytes) · 4 how long settled ones are kept
--       5 number of settled kept · 6 channel
--       a group's arguments: ids of the delivered
-- →     a group: the state's number or nil for each of its delivered, then of its others; leased
--       for one whose entry the stream did not take.
--       A message that this very call settled before (its answer was lost) is answered again.
-- @include stores/redis/messages/turns.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = tonumber(ARGV[2])
local nonce = ARGV[3]
local before = clamped(now) - tonumber(ARGV[4])
local cap = tonumber(ARGV[5])
local channel = ARGV[6]
local moment = struct.pack('<I6', now)
local FORGET = 16 -- forgotten with every call, beyond as many as it settles

local function settle(group)
  local k, a, number, runs, others, turns, adds = unpack(group)
  local records, leases, tokens, grants = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  local counters, settled = KEYS[k + 5], KEYS[k + 6]
  local answers, counts, ended = {}, {}, {}
  local fields, ids, entries = {}, {}, {}

  local function retire(id, h)
    count(counts, tostring(h.state), 1)
    entries[#entries + 1] = moment .. id
  end

  -- In a route that keeps turns: the message gives its key free, and may line up again.
  local function take_turn(route, record, id, h)
    local first = turns[route]
    if not first then return end
    local line, next_, busy = KEYS[k + first], KEYS[k + first + 1], KEYS[k + first + 2]
    local key = key_of(record, id)
    if h then line_up(line, next_, key, h, id) end
    make_way(line, next_, busy, key, id)
  end

  local function is_added(entry)
    local stream, maxlen, words = unpack(entry)
    local told = maxlen and { 'MAXLEN', '~', maxlen, '*' } or { '*' }
    for w = 1, #words do told[#told + 1] = words[w] end
    return type(redis.pcall('XADD', KEYS[k + stream], unpack(told))) == 'string'
  end

  local function stale(record)
    if record then
      local h = read_head(record)
      if h.nonce == nonce then return h.state end
    end
    return false
  end

  if number > 0 then
    local found = get_many('HMGET', records, ARGV, a + 1, a + number)
    local held = get_many('HMGET', leases, ARGV, a + 1, a + number)
    local seen, i, done = {}, 0, 0
    for r = 1, #runs do
      local token, length, decided = unpack(runs[r])
      local closed, route, bared = 0, false, baring(moment, nonce, decided)
      for _ = 1, length do
        i = i + 1
        local id, record, lease = ARGV[a + i], found[i], held[i]
        local held_here = lease and sub(lease, 1, 8) == token and not seen[id]
        if held_here and adds and adds[i] and not is_added(adds[i]) then
          answers[i] = LEASED
        elseif held_here then
          seen[id] = true
          closed = closed + 1
          done = done + 1
          route = route or route_of(record, read_head(record).at)
          ids[done], entries[done] = id, moment .. id
          fields[2 * done - 1], fields[2 * done] = id, bared(record, lease)
          answers[i] = DELIVERED
          if turns then take_turn(route, record, id) end
        else
          answers[i] = not seen[id] and stale(record)
        end
      end
      if closed > 0 then
        ended[token] = (ended[token] or 0) + closed
        count(counts, 'l' .. route, -closed)
        count(counts, tostring(DELIVERED), closed)
      end
    end
    if done > 0 then
      variadic('HDEL', leases, ids)
      variadic('HSET', records, fields)
    end
  end

  for i = 1, #others do
    local id, token, state, refund, due, failed, word, detail, decided, allowed, counter, key,
      index, entry, member = unpack(others[i])
    local held = redis.call('HGET', leases, id)
    local record = redis.call('HGET', records, id)
    if held and string.sub(held, 1, 8) == token then
      local _, claimed, asked = read_lease(held)
      local h = read_head(record)
      local route = route_of(record, h.at)
      local attempt, added = h.attempt + 1, ''
      local back = state == SCHEDULED
      if (back or allowed) and refund == 0 and not asked then
        added = event(claimed, 'released', allowed, attempt)
      end
      if word then
        added = added .. event(now, word, detail, refund == 0 and attempt)
      end
      if back and asked then state = CANCELLED end
      h.state = state
      if refund == 0 then h.attempt = attempt end
      h.claimed = (refund == 0 and not back) and claimed or 0
      h.settled = state == SCHEDULED and 0 or now
      h.nonce = nonce
      count(counts, 'l' .. route, -1)
      if state == SCHEDULED then
        if due then h.due = due end
        count(counts, counter, 1)
        if index then
          redis.call('RPUSH', KEYS[k + key], entry)
          redis.call('ZADD', KEYS[k + index], 'LT', h.due, member)
        else
          redis.call('ZADD', KEYS[k + key], h.due, id)
          redis.call('PUBLISH', channel, string.format('%.0f %s', h.due, route))
        end
      elseif state == DEAD then
        count(counts, 'd' .. route, 1)
        redis.call('ZADD', KEYS[k + key], h.due, id)
      else
        retire(id, h)
      end
      redis.call('HDEL', leases, id)
      redis.call('HSET', records, id, rewrite(record, h, added, failed, state == DELIVERED, decided))
      if turns then take_turn(route, record, id, state == SCHEDULED and h) end
      ended[token] = (ended[token] or 0) + 1
      answers[number + i] = state
    else
      answers[number + i] = stale(record)
    end
  end

  for token, closed in pairs(ended) do close_grant(tokens, grants, token, closed) end
  if #entries > 0 then variadic('RPUSH', settled, entries) end
  write_counts(counters, counts)
  forget(settled, records, counters, KEYS[k + 7], KEYS[k + 8], before, cap, #entries + FORGET)
  return answers
end

local answers = {}
for i = 1, #groups do answers[i] = settle(groups[i]) end
return answers
