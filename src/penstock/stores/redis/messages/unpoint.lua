-- UNPOINT: forget pointers, unless their ids were reserved again.
--
-- KEYS  a group: records, counters
-- ARGV  1 groups (msgpack): { first key, first argument, number of ids }
--       2 milliseconds since the reservation at least
--       a group's arguments: id, number of the partition pointed to, of each
-- →     a group: 1 where nothing points there any more, 0 where it was reserved too recently
-- @include stores/redis/messages/record.lua

local groups = cmsgpack.unpack(ARGV[1])
local before = server_time() - tonumber(ARGV[2])

local answers = {}
for i = 1, #groups do
  local k, a, number = unpack(groups[i])
  local answer = {}
  for j = 1, number do
    local id, target = ARGV[a + 2 * j - 1], tonumber(ARGV[a + 2 * j])
    local record = redis.call('HGET', KEYS[k + 1], id)
    local head = record and read_head(record)
    answer[j] = 1
    if head and head.state == ELSEWHERE and head.version == target then
      if head.due < before then
        redis.call('HDEL', KEYS[k + 1], id)
        redis.call('HINCRBY', KEYS[k + 2], 'g' .. head.generation, -1)
      else
        answer[j] = 0
      end
    end
  end
  answers[i] = answer
end
return answers
