-- POLICY_ACCOUNT: the counters of one key, to be read by people.
--
-- KEYS  a group: account
-- ARGV  1 groups (msgpack): { first key } · 2 now
-- →     a group: { name, { time … }, { count … }, places held, latest send … }

local groups = cmsgpack.unpack(ARGV[1])
local now = tonumber(ARGV[2])

-- The times and how many places are held now, of a counter as policy_keyed.lua keeps it.
local function read(kept)
  local times, waiting, packed, held = {}, 0, kept[TIMES], kept[HELD]
  for i = 1, #packed, 8 do times[#times + 1] = struct.unpack('>d', packed, i) end
  for i = 17, #held, 24 do
    if struct.unpack('>d', held, i) > now then waiting = waiting + 1 end
  end
  return times, waiting
end

-- The same of one that was kept before that.
local function read_older(c)
  local waiting = 0
  for _, ends in pairs(c[HELD]) do
    if type(ends) == 'number' and ends > now then waiting = waiting + 1 end
  end
  return c[TIMES], waiting
end

local answers = {}
for i = 1, #groups do
  local blob = redis.call('GET', KEYS[groups[i][1] + 1])
  local account = blob and cmsgpack.unpack(blob) or { 0, {} }
  local answer = {}
  for name, c in pairs(account[2]) do
    local times, waiting = (account[3] == 2 and read or read_older)(c)
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = name, times, c[COUNTS]
    answer[n + 4], answer[n + 5] = waiting, c[LAST]
  end
  answers[i] = answer
end
return answers
