-- Shared by the scripts that keep turns: routes that promise something per key have in each
-- partition, all under one hash tag,
--   line   ZSET of all that wait, scored 0:
--          key \0 (\0 begun, \1 not) due (6 bytes, big-endian) id — so a key's line is a range
--   turns  ZSET key → due of its next message: never later than the truth (no claim would find it),
--          sometimes earlier (a claim corrects it); absent: no message, or its limit is reached
--   busy   ZSET of leased messages, scored 0: key \0 id
-- A state `s` has the names of the three and whether it is `open`; `asked` has now, limit, in_flight (of one key at most)
-- and ordered.

local LOOKED = 1000 -- keys looked at in vain at most: their hints are put right, so it goes on
local QUEUE = 32 -- keys of a partition read at a time

local function due_of(entry, key)
  return (struct.unpack('>I6', entry, #key + 3))
end

-- The first of a key's line, either begun messages or the others; at most `number`.
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

-- The next messages of a key, due or not, as many as its limit allows.
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

-- Put the key's turn where it belongs.
local function set_turn(s, key, heads)
  if #heads == 0 then
    redis.call('ZREM', s.turns, key)
  else
    redis.call('ZADD', s.turns, due_of(heads[1], key), key)
  end
end

-- The next key of a partition that may have its turn now; turns are read a few at a time.
local function next_turn(s, asked)
  if not s.queue or (s.at > #s.queue and not s.drained) then
    local hints = redis.call('ZRANGEBYSCORE', s.turns, '-inf', asked.now, 'WITHSCORES', 'LIMIT',
      s.looked_at or 0, QUEUE)
    s.queue, s.at, s.drained = {}, 1, #hints < 2 * QUEUE
    for i = 1, #hints, 2 do
      s.queue[#s.queue + 1] = { key = hints[i], due = tonumber(hints[i + 1]) }
    end
  end
  return s.queue[s.at]
end

-- A turn that is later than its hint said, but now: into the queue, unless it is yet to be read.
local function requeue(s, turn)
  local place = s.at
  while s.queue[place] and by_due(s.queue[place], turn) do place = place + 1 end
  if s.queue[place] or s.drained then table.insert(s.queue, place, turn) end
end

-- Give keys their turns, by the due of their next message, over all partitions: `take` (partition,
-- key, its entries in the line, how many at most) says how many it took, or would have taken.
local function serve(states, asked, looks, take)
  local left, looked = asked.limit, 0
  while left > 0 and looked < asked.limit + LOOKED do
    local first, s
    for _, one in ipairs(states) do
      local turn = one.open and next_turn(one, asked)
      if turn and (not first or by_due(turn, first)) then first, s = turn, one end
    end
    if not first then return end
    s.at = s.at + 1
    looked = looked + 1
    local heads = heads_of(s, first.key, asked)
    local truth = heads[1] and due_of(heads[1], first.key)
    if truth == first.due then
      left = left - take(s, first.key, heads, left)
      if looks then
        s.looked_at = (s.looked_at or 0) + 1
      else
        set_turn(s, first.key, heads_of(s, first.key, asked))
      end
    else
      set_turn(s, first.key, heads)
      if truth and truth <= asked.now then requeue(s, { key = first.key, due = truth }) end
    end
  end
end
