-- POLICY_ACCOUNT: the counters of one key, to be read by people.
--
-- KEYS  a group: accounts
-- ARGV  1 groups (msgpack): { first key } · 2 now · 3 the key
-- →     a group: { name, { time … }, { count … }, places held, latest send … }
-- @include stores/redis/policies/kept.lua

local groups = cmsgpack.unpack(ARGV[1])
local now = tonumber(ARGV[2])

local answers = {}
for i = 1, #groups do
  local k = groups[i][1]
  local blob = redis.call('HGET', KEYS[k + 1], ARGV[3])
  local counters = unpacked(blob, now)[2]
  local answer = {}
  for name, c in pairs(counters) do
    local waiting, held = 0, c[HELD]
    for place = 1 + ID, #held, ENTRY do
      if unpack_struct(NUMBER, held, place) > now then waiting = waiting + 1 end
    end
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = name, times_of(c), c[COUNTS]
    answer[n + 4], answer[n + 5] = waiting, c[LAST]
  end
  answers[i] = answer
end
return answers
