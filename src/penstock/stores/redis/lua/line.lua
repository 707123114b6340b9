-- Shared by the scripts that keep turns: routes that promise something per key have in each
-- partition, all under one hash tag,
--   line   ZSET of all that wait, scored 0:
--          key \0 (\0 begun, \1 not) due (6 bytes, big-endian) id — so a key's line is a range
--   turns  ZSET key → due of its next message: never later than the truth (then nobody would look),
--          sometimes earlier (a claim looks and mends it); not there: nothing, or its number is out
--   busy   ZSET of what is leased, scored 0: key \0 id
-- A state `s` has the names of the three; `asked` has now, limit, in_flight (of one key at most)
-- and ordered.

local LOOKED = 1000 -- keys looked at in vain at most: their hints are put right, so it goes on

local function due_of(entry, key)
  return (struct.unpack('>I6', entry, #key + 3))
end

-- The first of a key's line, those begun or those not; at most `number`.
local function line_of(line, key, was_begun, number)
  local from = key .. (was_begun and '\0\0' or '\0\1')
  local to = key .. (was_begun and '\0\1' or '\0\2')
  return redis.call('ZRANGEBYLEX', line, '[' .. from, '(' .. to, 'LIMIT', 0, number)
end

-- The message is no longer leased: the next of its key may have its turn.
local function make_way(line, turns, busy, key, id)
  redis.call('ZREM', busy, key .. '\0' .. id)
  for _, was_begun in ipairs({ true, false }) do
    local first = line_of(line, key, was_begun, 1)[1]
    if first then redis.call('ZADD', turns, 'LT', due_of(first, key), key) end
  end
end

local function by_due(one, other)
  if one.due ~= other.due then return one.due < other.due end
  return one.key < other.key
end

-- What of a key may go next, whether due or not, at most as many as there is room for.
local function heads_of(s, key, asked)
  local range = redis.call('ZLEXCOUNT', s.busy, '[' .. key .. '\0', '(' .. key .. '\1')
  local room = math.min(asked.in_flight - range, asked.limit)
  if room <= 0 then return {} end
  local heads = line_of(s.line, key, true, room)
  if asked.ordered and #heads > 0 then return heads end
  local fresh = line_of(s.line, key, false, room)
  if #heads == 0 then return fresh end
  for i = 1, #fresh do heads[#heads + 1] = fresh[i] end
  table.sort(heads, function(one, other)
    return string.sub(one, #key + 3) < string.sub(other, #key + 3)
  end)
  for i = room + 1, #heads do heads[i] = nil end
  return heads
end

-- Put the key's turn where it belongs; what may go next of it.
local function reckon(s, key, asked)
  local heads = heads_of(s, key, asked)
  if #heads == 0 then
    redis.call('ZREM', s.turns, key)
  else
    redis.call('ZADD', s.turns, due_of(heads[1], key), key)
  end
  return heads
end

-- The keys of a partition whose turn it is, the first `left` at least as long as there are so many.
local function turns_of(s, asked, left, into)
  local found, looked = 0, 0
  while found < left and looked < left + LOOKED do
    local hints = redis.call('ZRANGEBYSCORE', s.turns, '-inf', asked.now, 'WITHSCORES',
      'LIMIT', found, left - found)
    if #hints == 0 then return end
    for i = 1, #hints, 2 do
      local key, hint = hints[i], tonumber(hints[i + 1])
      local heads = reckon(s, key, asked)
      looked = looked + 1
      local truth = heads[1] and due_of(heads[1], key)
      if truth == hint then
        found = found + 1
        into[#into + 1] = { due = hint, key = key, heads = heads, s = s }
      elseif truth and truth <= asked.now then
        break -- its place is somewhere further on: look from here again
      end
    end
  end
end
