-- What was busy is over: it may wait again, and the next of its key may have its turn.
-- KEYS: of every group, its line, turns, busy and ends.
-- ARGV[1]: msgpack, a group each: {first key, first argument, route, number}
-- ARGV[2]: channel; then (key, id, entry in the line or nothing) again and again.
-- Returns how many each group had.
-- @include stores/redis/messages/line.lua
local answers = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local k, place, route, number = unpack(group)
  local line, turns, busy, ends = unpack(KEYS, k + 1, k + 4)
  local nearest
  for _ = 1, number do
    local key, id, entry = ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
    if entry ~= '' then
      local due = due_of(entry, key)
      redis.call('ZADD', line, 0, entry)
      if not nearest or due < nearest then nearest = due end
    end
    redis.call('ZREM', ends, key .. '\0' .. id)
    make_way(line, turns, busy, key, id)
    place = place + 3
  end
  if nearest then redis.call('PUBLISH', ARGV[2], string.format('%.0f %s', nearest, route)) end
  answers[g] = number
end
return answers
