-- Take the ids of a route that are due: by priority, then due, over all groups of this call.
-- A call that is repeated with its token gives the same ids again.
-- KEYS: of every group, its state, its ten queues from priority 9 down to 0, what the caller took last.
-- ARGV[1]: msgpack, a group each: {first key}
-- ARGV[2]: now (held against the server's own time), ARGV[3]: limit, ARGV[4]: route
-- ARGV[5]: token of this call, always as long; ARGV[6]: how long it may be repeated (ms)
-- Returns of each group {in use, paused, next due or '', {id, due, priority, id, due, priority …}}.
-- @include redis_kit/common.lua
local now = clamped(tonumber(ARGV[2]))
local left, route, token = tonumber(ARGV[3]), ARGV[4], ARGV[5]
local answers, first, open_ = {}, {}, {}
for g, group in ipairs(cmsgpack.unpack(ARGV[1])) do
  local state = KEYS[group[1] + 1]
  local open = redis.call('HEXISTS', state, 'open')
  answers[g] = { open, redis.call('HEXISTS', state, 'p:' .. route), '', {} }
  local last = redis.call('GET', KEYS[group[1] + 12])
  if last and string.sub(last, 1, #token) == token then
    answers[g][4] = cmsgpack.unpack(string.sub(last, #token + 1))
    left = left - #answers[g][4] / 3
  elseif open == 1 and answers[g][2] == 0 then
    first[#first + 1] = { g, group[1] + 1 }
  end
  if open == 1 and answers[g][2] == 0 then open_[#open_ + 1] = { g, group[1] + 1 } end
end
for rank = 1, 10 do
  if left <= 0 then break end
  -- More than a fair share of each, so that the best of all groups are among them.
  local share = left
  if left > 64 and #first > 1 then share = math.ceil(left / #first) * 2 end
  local found = {}
  for _, one in ipairs(first) do
    local due = redis.call('ZRANGEBYSCORE', KEYS[one[2] + rank], '-inf', now, 'WITHSCORES', 'LIMIT', 0, share)
    for i = 1, #due, 2 do
      found[#found + 1] = { tonumber(due[i + 1]), due[i], one[1], KEYS[one[2] + rank] }
    end
  end
  table.sort(found, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[2] < b[2]
  end)
  for i = 1, math.min(left, #found) do
    local entry = found[i]
    redis.call('ZREM', entry[4], entry[2])
    local taken = answers[entry[3]][4]
    taken[#taken + 1] = entry[2]
    taken[#taken + 1] = string.format('%.0f', entry[1])
    taken[#taken + 1] = tostring(10 - rank)
  end
  left = left - math.min(left, #found)
end
for _, one in ipairs(first) do
  local taken = answers[one[1]][4]
  if #taken > 0 then redis.call('SET', KEYS[one[2] + 11], token .. cmsgpack.pack(taken), 'PX', ARGV[6]) end
end
for _, one in ipairs(open_) do
  local nearest
  for rank = 1, 10 do
    local head = redis.call('ZRANGE', KEYS[one[2] + rank], 0, 0, 'WITHSCORES')[2]
    if head and (not nearest or tonumber(head) < nearest) then nearest = tonumber(head) end
  end
  if nearest then answers[one[1]][3] = string.format('%.0f', nearest) end
end
return answers
