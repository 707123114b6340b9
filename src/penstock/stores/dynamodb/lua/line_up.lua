-- Have ids wait in the lines of their keys; tell whoever listens when one is nearer than the rest.
-- KEYS: of every group, its line and turns (stores/redis/messages/line.lua has their shapes).
-- ARGV[1]: msgpack, a group each: {first key, first argument, route, number of entries}
-- ARGV[2]: channel; then (entry, due, key) again and again. Returns how many entries each group had.
local answers = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local first, place, route, number = unpack(group)
  local line, turns = KEYS[first + 1], KEYS[first + 2]
  local head = redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')[2]
  local nearest
  for _ = 1, number do
    local entry, due, key = ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
    redis.call('ZADD', line, 0, entry)
    redis.call('ZADD', turns, 'LT', due, key)
    if not nearest or tonumber(due) < tonumber(nearest) then nearest = due end
    place = place + 3
  end
  if nearest and (not head or tonumber(nearest) < tonumber(head)) then
    redis.call('PUBLISH', ARGV[2], nearest .. ' ' .. route)
  end
  answers[g] = number
end
return answers
