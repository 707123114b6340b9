-- Shared by all scripts (named by @include): the clock, and commands with any number of arguments.

local sub, byte = string.sub, string.byte -- locals: these are called for every message
local CHUNK = 4000 -- arguments of one call, an even number; Lua's stack ends at 8,000

-- Milliseconds by the server's own clock.
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Milliseconds by the server's own clock at most: no caller can be ahead of it.
local function clamped(now)
  local server = server_time()
  return now < server and now or server
end

-- command key items[first] … items[last], in as many calls as it takes; pairs stay together.
local function variadic(command, key, items, first, last)
  first = first or 1
  last = last or #items
  for from = first, last, CHUNK do
    redis.call(command, key, unpack(items, from, math.min(from + CHUNK - 1, last)))
  end
end

-- HMGET or ZMSCORE key items[first] … items[last]: one table of as many values (false: none).
local function get_many(command, key, items, first, last)
  first = first or 1
  last = last or #items
  if last - first < CHUNK then
    if last < first then return {} end
    return redis.call(command, key, unpack(items, first, last))
  end
  local values = {}
  for from = first, last, CHUNK do
    local part = redis.call(command, key, unpack(items, from, math.min(from + CHUNK - 1, last)))
    for i = 1, #part do values[#values + 1] = part[i] end
  end
  return values
end
