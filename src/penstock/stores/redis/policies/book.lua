-- POLICY_BOOK: the one record of policies and suppression lists; every change is a new version.
--
-- KEYS  a group: book
-- ARGV  1 groups (msgpack): { first key } · 2 step · 3 id · 4 body
--       'read'    nothing is changed
--       'shards'  there are `id` counter shards, unless a number was set before
--       'put'     keep the policy; its counters go on from the version it was first put with
--       'drop'    the policy is gone
--       'list'    keep the suppression list (without its keys)
--       'unlist'  the list is gone
--       'raise'   the version is above `id`, which some part of the store has seen
-- →     a group: { version, number of shards or nil, 1 if something was there to change or 0,
--         { field, value … } of the book }
-- The book  v: version · n: shards · p<id>: "<mark> <body>" · s<id>: body

local key = KEYS[cmsgpack.unpack(ARGV[1])[1][1] + 1]
local step, id, body = ARGV[2], ARGV[3], ARGV[4]
local version = tonumber(redis.call('HGET', key, 'v') or 0)
local done = 0

local function changed(above)
  version = math.max(version, above or 0) + 1
  redis.call('HSET', key, 'v', string.format('%.0f', version))
  done = 1
end

if step == 'shards' then
  redis.call('HSETNX', key, 'n', id)
elseif step == 'put' then
  local before = redis.call('HGET', key, 'p' .. id)
  local mark = before and string.match(before, '^%d+')
  if not before or string.sub(before, #mark + 2) ~= body then
    changed()
    mark = mark or string.format('%.0f', version)
    redis.call('HSET', key, 'p' .. id, mark .. ' ' .. body)
  end
elseif step == 'list' then
  redis.call('HSET', key, 's' .. id, body)
  changed()
elseif step == 'drop' or step == 'unlist' then
  if redis.call('HDEL', key, (step == 'drop' and 'p' or 's') .. id) == 1 then changed() end
elseif step == 'raise' then
  if version <= tonumber(id) then changed(tonumber(id)) end
end
return { { version, redis.call('HGET', key, 'n'), done, redis.call('HGETALL', key) } }
