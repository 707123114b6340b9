-- TRIM: cut a stream's old end: nothing that a group has not read or not acknowledged, and never
-- below the number that always stays.
--
-- KEYS  1 a stream
-- ARGV  1 how many always stay
-- →     how many went

local function before(a, b)
  local a_ms, a_n = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_n = string.match(b, '^(%d+)-(%d+)$')
  if a_ms ~= b_ms then return tonumber(a_ms) < tonumber(b_ms) end
  return tonumber(a_n) < tonumber(b_n)
end

if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local excess = redis.call('XLEN', KEYS[1]) - tonumber(ARGV[1])
if excess <= 0 then return 0 end
local oldest = nil
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local facts = {}
  for i = 1, #group, 2 do facts[group[i]] = group[i + 1] end
  local pending = redis.call('XPENDING', KEYS[1], facts.name)
  local needed = pending[2] or facts['last-delivered-id']
  if not oldest or before(needed, oldest) then oldest = needed end
end
if not oldest then return redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1]) end
return redis.call('XTRIM', KEYS[1], 'MINID', '~', oldest, 'LIMIT', excess)
