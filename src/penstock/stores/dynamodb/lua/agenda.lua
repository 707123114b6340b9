-- Take the ids that are due and that no other process was given a moment ago.
-- KEYS: the ids by moment, the ids that are held by when that ends, the mark that all are known.
-- ARGV[1]: now (held against the server's own time), ARGV[2]: limit, ARGV[3]: how long the ids are
-- held (ms), ARGV[4]: how long the mark lasts (ms), then ids that the caller holds no longer.
-- Returns {known before, next moment or '', {id …}}; a caller to whom it is not known reads all.
-- @include redis_kit/common.lua
local server = server_time()
local now = clamped(tonumber(ARGV[1]))
local limit = tonumber(ARGV[2])
local LOOKED_AT = 10000
if #ARGV > 4 then variadic('ZREM', KEYS[2], ARGV, 5) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', server)
local set = redis.call('SET', KEYS[3], '1', 'NX', 'PX', ARGV[4])
local taken, held, nearest = {}, {}, nil
local offset = 0
while #taken < limit and offset < LOOKED_AT do
  local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', offset, CHUNK)
  for _, id in ipairs(due) do
    local ends = redis.call('ZSCORE', KEYS[2], id)
    if not ends then
      taken[#taken + 1] = id
      held[#held + 1] = string.format('%.0f', server + tonumber(ARGV[3]))
      held[#held + 1] = id
      if #taken == limit then break end
    elseif not nearest or tonumber(ends) < nearest then
      nearest = tonumber(ends)
    end
  end
  if #due < CHUNK then break end
  offset = offset + CHUNK
end
if #held > 0 then variadic('ZADD', KEYS[2], held) end
local later = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if later[2] and (not nearest or tonumber(later[2]) < nearest) then nearest = tonumber(later[2]) end
return { set and 0 or 1, nearest and string.format('%.0f', nearest) or '', taken }
