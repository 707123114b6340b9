-- DELIVER: end the leases of delivered messages; a token that is not current changes nothing.
--
-- KEYS  a group: records, leases, tokens, grants, counters, settled, index by key, unused pointers,
--       then the lines, turns, busy and streams its plan points at
-- ARGV  1 groups (msgpack): { first key, first argument, number of ids,
--         runs = { { token, how many in a row are its, decision that they keep (packed) or false }
--           … },
--         turns = { route → key of its line, before those of its turns and busy } or false,
--         entries = { { stream, maximal length or false, names and values } or false … } or false:
--           added to its stream before the message is settled }
--       2 now · 3 nonce of this call (4 bytes) · 4 how long settled ones are kept
--       5 number of settled kept
--       a group's arguments: ids
-- →     a group: the state's number or nil for each; leased for one whose entry the stream did not
--       take. A message that this very call settled before (its answer was lost) is answered again.
-- A copy of `penstock.model.lifecycle.settle` for the delivered.
-- @include stores/redis/messages/turns.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = tonumber(ARGV[2])
local nonce = ARGV[3]
local before = clamped(now) - tonumber(ARGV[4])
local cap = tonumber(ARGV[5])
local moment = struct.pack('<I6', now)
local FORGET = 16 -- forgotten with every call, beyond as many as it settles

local function deliver(group)
  local k, a, number, runs, turns, adds = unpack(group)
  local records, leases, tokens, grants = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  local counters, settled = KEYS[k + 5], KEYS[k + 6]
  local answers, counts, ended = {}, {}, {}
  local fields, ids, entries = {}, {}, {}

  -- On a route that keeps turns the next message of the key may get its turn.
  local function free_key(route, record, id)
    local first = turns[route]
    if not first then return end
    local line, next_, busy = KEYS[k + first], KEYS[k + first + 1], KEYS[k + first + 2]
    make_way(line, next_, busy, key_of(record, id), id)
  end

  local function is_added(entry)
    local stream, maxlen, words = unpack(entry)
    local arguments = maxlen and { 'MAXLEN', '~', maxlen, '*' } or { '*' }
    for w = 1, #words do arguments[#arguments + 1] = words[w] end
    return type(redis.pcall('XADD', KEYS[k + stream], unpack(arguments))) == 'string'
  end

  local function stale(record)
    if record then
      local h = read_head(record)
      if h.nonce == nonce then return h.state end
    end
    return false
  end

  local found = get_many('HMGET', records, ARGV, a + 1, a + number)
  local held = get_many('HMGET', leases, ARGV, a + 1, a + number)
  local seen, i, done = {}, 0, 0
  for r = 1, #runs do
    local token, length, decided = unpack(runs[r])
    local closed, route = 0, false
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
        fields[2 * done - 1], fields[2 * done] = id, bare(record, lease, moment, nonce, decided)
        answers[i] = DELIVERED
        if turns then free_key(route, record, id) end
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
  variadic('HDEL', leases, ids)
  variadic('HSET', records, fields)
  variadic('RPUSH', settled, entries)
  for token, closed in pairs(ended) do close_grant(tokens, grants, token, closed) end
  write_counts(counters, counts)
  forget(settled, records, counters, KEYS[k + 7], KEYS[k + 8], before, cap, #entries + FORGET)
  return answers
end

local answers = {}
for i = 1, #groups do answers[i] = deliver(groups[i]) end
return answers
