-- PEEK: read index structures, bounded.
--
-- KEYS  a group: the keys its commands point at
-- ARGV  1 groups (msgpack): { first key, commands = { { name, key, arguments … } … } }
-- →     a group: the answer of each command

local groups = cmsgpack.unpack(ARGV[1])
local ALLOWED = { HGETALL = true, HLEN = true, HSCAN = true, LLEN = true, LRANGE = true,
  ZCARD = true, ZCOUNT = true, ZRANGE = true, ZRANGEBYSCORE = true }

local answers = {}
for i = 1, #groups do
  local k, commands = unpack(groups[i])
  local answer = {}
  for j, command in ipairs(commands) do
    assert(ALLOWED[command[1]], 'not a command to peek with')
    answer[j] = redis.call(command[1], KEYS[k + command[2]], unpack(command, 3))
  end
  answers[i] = answer
end
return answers
