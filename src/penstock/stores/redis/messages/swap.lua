-- SWAP: put a changed record in the place of the one it was made from, with its index entries.
--
-- KEYS  a group: records, leases, counters, index by key, generation, then the keys its commands
--       point at
-- ARGV  1 groups (msgpack): { first key, first argument, entries = { { id, head that must be
--         there, lease that must be there or false, commands = { { name, key, arguments … } … },
--         news or false } … }, generation }
--       2 channel
--       a group's arguments: the new record of each entry; '': nothing is kept of the message
-- →     a group: 1 where it was done, 0 where the message was another by then; nothing was done and
--       the answer is empty: another generation of the layout holds
-- @include stores/redis/messages/record.lua

local groups = cmsgpack.unpack(ARGV[1])
local channel = ARGV[2]

local function swap(group)
  local k, a, entries, generation = unpack(group)
  if tonumber(redis.call('GET', KEYS[k + 5]) or 0) ~= generation then return {} end
  local answers, indexed = {}, by_key(KEYS[k + 4])
  for i = 1, #entries do
    local id, head, lease, commands, news = unpack(entries[i])
    local record = redis.call('HGET', KEYS[k + 1], id)
    if record and string.sub(record, 1, #head) == head
      and redis.call('HGET', KEYS[k + 2], id) == lease then
      local after = ARGV[a + i]
      if after == '' then
        redis.call('HDEL', KEYS[k + 1], id)
      else
        redis.call('HSET', KEYS[k + 1], id, after)
      end
      if indexed then
        local old, new = key_entry(record, id), after ~= '' and key_entry(after, id)
        if old ~= new then
          if old then redis.call('ZREM', KEYS[k + 4], old) end
          if new then redis.call('ZADD', KEYS[k + 4], 0, new) end
        end
      end
      for _, command in ipairs(commands) do
        redis.call(command[1], KEYS[k + command[2]], unpack(command, 3))
      end
      if news then redis.call('PUBLISH', channel, news) end
      answers[i] = 1
    else
      answers[i] = 0
    end
  end
  return answers
end

local answers = {}
for i = 1, #groups do answers[i] = swap(groups[i]) end
return answers
