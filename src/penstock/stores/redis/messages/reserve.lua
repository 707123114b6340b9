-- RESERVE: note in an id's own partition in which other one its message is about to be.
--
-- KEYS  a group: generation, records, leases, counters
-- ARGV  1 groups (msgpack): { first key, first argument, generation, number of ids }
--       a group's arguments: id, number of the partition, of each
-- →     a group: { 'reserved', moment, record or nil …, lease or nil … }: a record where the id is
--       known, which may be a pointer to another partition; or { 'layout' }: another generation
--       holds, nothing was written
-- @include stores/redis/messages/record.lua

local groups = cmsgpack.unpack(ARGV[1])

local function reserve(group)
  local k, a, generation, number = unpack(group)
  if tonumber(redis.call('GET', KEYS[k + 1]) or 0) ~= generation then return { 'layout' } end
  local moment = server_time()
  local ids = {}
  for i = 1, number do ids[i] = ARGV[a + 2 * i - 1] end
  local found, held = get_many('HMGET', KEYS[k + 2], ids), get_many('HMGET', KEYS[k + 3], ids)
  local fields, new = {}, 0
  for i = 1, number do
    local target = tonumber(ARGV[a + 2 * i])
    local head = found[i] and read_head(found[i])
    -- A pointer's version is the partition it points to, its due the moment of its reservation.
    if not head or (head.state == ELSEWHERE and head.version == target) then
      fields[#fields + 1] = ids[i]
      fields[#fields + 1] = struct.pack('<BBBBI2I3I6I6B', ELSEWHERE, 0, 0,
        head and head.generation or generation, 0, target, moment, 0, 0)
      if not head then new = new + 1 end
      found[i] = false
    end
  end
  if #fields > 0 then variadic('HSET', KEYS[k + 2], fields) end
  if new > 0 then redis.call('HINCRBY', KEYS[k + 4], 'g' .. generation, new) end
  return { 'reserved', moment, found, held }
end

local answers = {}
for i = 1, #groups do answers[i] = reserve(groups[i]) end
return answers
