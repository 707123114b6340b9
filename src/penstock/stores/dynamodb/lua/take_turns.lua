-- Take ids whose turn it is: keys by the due of their next message, over all groups of this call.
-- What is taken counts as busy until it is freed; what should be over by now is told, to be checked.
-- A call that is repeated with its token gives the same again.
-- KEYS: of every group, its line, turns, busy, ends and what the caller took last.
-- ARGV[1]: msgpack, a group each: {first key}
-- ARGV[2]: now (held against the server's own time), ARGV[3]: limit, ARGV[4]: until when it is busy,
-- ARGV[5]: of one key in flight at most, ARGV[6]: 1 ordered, ARGV[7]: how many to tell at most
-- ARGV[8]: token of this call, always as long; ARGV[9]: how long it may be repeated (ms)
-- Returns of each group {next due or '', {key, entry, key, entry …}, {key \0 id …} to be checked}.
-- @include redis_kit/common.lua
-- @include stores/redis/messages/line.lua
local server = server_time()
local now = math.min(tonumber(ARGV[2]), server)
local asked = { now = now, limit = tonumber(ARGV[3]), in_flight = tonumber(ARGV[5]), ordered = ARGV[6] == '1' }

local token = ARGV[8]
local states = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local k = group[1]
  local s = { line = KEYS[k + 1], turns = KEYS[k + 2], busy = KEYS[k + 3], ends = KEYS[k + 4],
    last = KEYS[k + 5], taken = {}, open = true }
  local last = redis.call('GET', s.last)
  if last and string.sub(last, 1, #token) == token then
    s.taken, s.open = cmsgpack.unpack(string.sub(last, #token + 1)), false
    asked.limit = asked.limit - #s.taken / 2
  end
  states[g] = s
end
serve(states, asked, false, function(s, key, heads, most)
  local number = 0
  for _, entry in ipairs(heads) do
    if number >= most or due_of(entry, key) > now then break end
    local held = key .. '\0' .. string.sub(entry, #key + 9)
    redis.call('ZREM', s.line, entry)
    -- One that is busy was brought by somebody who had read of it before: it comes back by itself.
    if not redis.call('ZSCORE', s.busy, held) then
      redis.call('ZADD', s.busy, 0, held)
      redis.call('ZADD', s.ends, ARGV[4], held)
      s.taken[#s.taken + 1] = key
      s.taken[#s.taken + 1] = entry
      number = number + 1
    end
  end
  return number
end)
local answers = {}
for g, s in ipairs(states) do
  if s.open and #s.taken > 0 then
    redis.call('SET', s.last, token .. cmsgpack.pack(s.taken), 'PX', ARGV[9])
  end
  local head = redis.call('ZRANGE', s.turns, 0, 0, 'WITHSCORES')[2]
  local over = redis.call('ZRANGEBYSCORE', s.ends, '-inf', now, 'LIMIT', 0, ARGV[7])
  answers[g] = { head or '', s.taken, over }
end
return answers
