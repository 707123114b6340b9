-- DUE: how much is due on a route in a partition, so that a claim over many knows whom to ask.
--
-- KEYS  a group: generation, counters, index, then the lanes of priority 9 … 0
-- ARGV  1 groups (msgpack): { first key }
--       2 now · 3 entries of a lane whose dues to return
--       4 … 13 the counters of the lanes · 14 the field of the pause
-- →     a group: { generation or nil, { number due of each lane }, { dues … } of each lane,
--         due of its first lane entry or nil, { index member, earliest due … } of at most 4 }
-- @include redis_kit/common.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = clamped(tonumber(ARGV[2]))
local told = tonumber(ARGV[3])

local function look(k)
  local counts = redis.call('HMGET', KEYS[k + 2], unpack(ARGV, 4, 14))
  local numbers, dues, head = {}, {}, false
  for lane = 1, 10 do
    numbers[lane], dues[lane] = 0, {}
    if not counts[11] and tonumber(counts[lane] or 0) > 0 then
      local key = KEYS[k + 3 + lane]
      numbers[lane] = redis.call('ZCOUNT', key, '-inf', now)
      local first = redis.call('ZRANGE', key, 0, math.max(told, 1) - 1, 'WITHSCORES')
      for i = 1, math.min(#first / 2, numbers[lane], told) do dues[lane][i] = first[2 * i] end
      if first[2] and (not head or tonumber(first[2]) < tonumber(head)) then head = first[2] end
    end
  end
  local far = redis.call('ZRANGE', KEYS[k + 3], 0, 3, 'WITHSCORES')
  return { redis.call('GET', KEYS[k + 1]), numbers, dues, head, far }
end

local answers = {}
for i = 1, #groups do answers[i] = look(groups[i][1]) end
return answers
