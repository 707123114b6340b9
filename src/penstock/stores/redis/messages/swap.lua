-- SWAP: write the changed record of a message that was read, if it still is the one that was read.
--
-- KEYS  a group: records, leases, tokens, grants, counters, index by key, generation, then the keys
--       its commands point at
-- ARGV  1 groups (msgpack): { first key, first argument, entries = { { id, head that must be there,
--         lease that must be there or false, the lease then: itself, another one, or false where it
--         ends, moment by which its time must be over or false, bytes of the record to replace,
--         counts = { counter, by … }, commands = { { name, key, arguments … } … } } … },
--         news = { what to publish … }, generation }
--       2 channel
--       a group's arguments: each entry's new record up to the bytes that stay; '': nothing is kept
-- →     a group: 1 where it was done (now, or by this very call whose answer was lost), 0 where the
--       message was another by then; empty and nothing done: another generation of the layout holds
-- @include stores/redis/messages/record.lua

local groups = cmsgpack.unpack(ARGV[1])
local channel = ARGV[2]

local function swap(group)
  local k, a, entries, news, generation = unpack(group)
  local records, leases, tokens, grants = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  if tonumber(redis.call('GET', KEYS[k + 7]) or 0) ~= generation then return {} end
  local ids, answers, counts, ended, ends = {}, {}, {}, {}, {}
  for i = 1, #entries do ids[i] = entries[i][1] end
  local found, held = get_many('HMGET', records, ids), get_many('HMGET', leases, ids)
  local indexed = by_key(KEYS[k + 6])

  local function is_over(token, moment)
    ends[token] = ends[token] or tonumber(redis.call('ZSCORE', tokens, token) or 0)
    return ends[token] <= clamped(moment)
  end

  local function keep_key(id, record, after)
    local old, new = key_entry(record, id), after and key_entry(after, id)
    if old == new then return end
    if old then redis.call('ZREM', KEYS[k + 6], old) end
    if new then redis.call('ZADD', KEYS[k + 6], 0, new) end
  end

  for i = 1, #entries do
    local id, head, lease, then_, over, replaced, added, commands = unpack(entries[i])
    local record, after = found[i], ARGV[a + i]
    local token = lease and sub(lease, 1, 8)
    if record and sub(record, 1, #head) == head and held[i] == lease
      and not (over and not is_over(token, over)) then
      after = after ~= '' and after .. sub(record, replaced + 1)
      if after then
        redis.call('HSET', records, id, after)
      else
        redis.call('HDEL', records, id)
      end
      if not then_ and lease then
        redis.call('HDEL', leases, id)
        ended[token] = (ended[token] or 0) + 1
      elseif then_ ~= lease then
        redis.call('HSET', leases, id, then_)
      end
      if indexed then keep_key(id, record, after) end
      for c = 1, #added, 2 do count(counts, added[c], added[c + 1]) end
      for c = 1, #commands do
        redis.call(commands[c][1], KEYS[k + commands[c][2]], unpack(commands[c], 3))
      end
      answers[i] = 1
    else
      local by_this_call = after == '' and not record
        or after ~= '' and record and sub(record, 1, #after) == after
      answers[i] = by_this_call and 1 or 0
    end
  end
  for token, number in pairs(ended) do close_grant(tokens, grants, token, number) end
  write_counts(KEYS[k + 5], counts)
  for n = 1, #news do redis.call('PUBLISH', channel, news[n]) end
  return answers
end

local answers = {}
for i = 1, #groups do answers[i] = swap(groups[i]) end
return answers
