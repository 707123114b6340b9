-- Hold ids of the near future; tell whoever listens when one is nearer than what was known.
-- KEYS: of every group, its queues (one a lane: route and priority).
-- ARGV[1]: msgpack, a group each: {first key, first argument, {{route, number of entries} a queue}}
-- ARGV[2]: LT (a due only ever comes nearer: what others know may be newer) or XX (as given)
-- ARGV[3]: channel; then (due, id) again and again.
-- Returns how many entries each group had.
local groups, mode, channel = cmsgpack.unpack(ARGV[1]), ARGV[2], ARGV[3]
local answers = {}
for g, group in ipairs(groups) do
  local key, place, total = group[1], group[2], 0
  for lane, spec in ipairs(group[3]) do
    local route, number = spec[1], spec[2]
    local queue = KEYS[key + lane]
    local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
    local nearest
    for _ = 1, number do
      local due, id = ARGV[place + 1], ARGV[place + 2]
      if mode == 'LT' then
        redis.call('ZADD', queue, 'LT', due, id)
      else
        redis.call('ZADD', queue, due, id)
      end
      if not nearest or tonumber(due) < tonumber(nearest) then nearest = due end
      place = place + 2
    end
    if nearest and (not head or tonumber(nearest) < tonumber(head)) then
      redis.call('PUBLISH', channel, nearest .. ' ' .. route)
    end
    total = total + number
  end
  answers[g] = total
end
return answers
