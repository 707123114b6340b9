-- JOIN: line up at the end of the lane, once.
-- A copy of `penstock.model.room_steps.join`.
--
-- KEYS  a room's 15
-- ARGV  1 now · 2 settings of rooms that were never PUT · 3 channel of wake-ups · 4 the room's name
--       5 … (user, lane, instance) each
-- →     false: no such room; or { outlook, answers }: { 'new' or 'known', ticket },
--       { 'closed' } or { 'unknown_lane' }
-- @include stores/redis/rooms/common.lua

local now = clamped(tonumber(ARGV[1]))
local r = load_room(0, now, ARGV[2])
if not r then return false end

local seq = tonumber(redis.call('HGET', KEYS[ROOM], 'seq') or 0)
local joined_at = string.format('%.3f', now / 1000)
local quotes = {}
local function quoted(instance)
  if not quotes[instance] then quotes[instance] = cjson.encode(instance) end
  return quotes[instance]
end

local function next_number(user)
  if r.state == 'scheduled' and r.lottery then
    return tonumber(string.sub(redis.sha1hex(r.seed .. ':' .. user), 1, 10), 16)
  end
  seq = math.max(seq + 1, now * 1000)
  return seq
end

local users, answers, new = {}, {}, {}
local into, records, lanes, seen, forget = {}, {}, {}, {}, {}
local function line_up(user, lane, instance)
  local number = next_number(user)
  into[lane] = into[lane] or {}
  local line, n = into[lane], #new
  line[#line + 1], line[#line + 2] = string.format('%.6f', number / 1000000), user
  records[2 * n + 1] = user
  records[2 * n + 2] = string.format('{"instanceId":%s,"joinedAt":%s,"place":%d}',
    quoted(instance), joined_at, number)
  lanes[2 * n + 1], lanes[2 * n + 2] = user, lane
  seen[2 * n + 1], seen[2 * n + 2] = now, user
  new[n + 1] = user
  new[user] = { 'W', lane, number, now, -1, -1, -1, '', instance, 1 }
end

for i = 5, #ARGV, 3 do users[#users + 1] = ARGV[i] end
for i, packed in ipairs(get_many('HMGET', KEYS[TICKETS], users)) do
  local user, lane, instance = users[i], ARGV[3 * i + 3], ARGV[3 * i + 4]
  local ticket = packed and unpack_ticket(packed)
  if new[user] or ticket and (ticket[STATE] == 'A' or ticket[STATE] == 'E') then
    answers[i] = { 'known', user }
  elseif find_waiting(r, user) then
    saw(r, user, now)
    answers[i] = { 'known', user }
  elseif r.state == 'closed' then
    answers[i] = { 'closed', false }
  elseif lane ~= DEFAULT and not r.index[lane] then
    answers[i] = { 'unknown_lane', false }
  else
    if ticket then forget[#forget + 1] = user end
    line_up(user, lane, instance)
    answers[i] = { 'new', user }
  end
end
if #new > 0 then
  variadic('HDEL', KEYS[TICKETS], forget)
  variadic('ZREM', KEYS[GONE], forget)
  for lane, line in pairs(into) do variadic('ZADD', lane_key(r, lane), line) end
  variadic('HSET', KEYS[RECORDS], records)
  variadic('HSET', KEYS[USERS], lanes)
  variadic('ZADD', KEYS[SEEN], seen)
  redis.call('HINCRBY', KEYS[ROOM], 'joined', #new)
  redis.call('HSET', KEYS[ROOM], 'seq', seq)
  if r.state == 'open' and r.slots < r.capacity then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
end
for _, answer in ipairs(answers) do
  local user = answer[2]
  local ticket = user and new[user]
  if ticket then
    ticket[11], ticket[12] = redis.call('ZRANK', lane_key(r, ticket[LANE]), user), now
    answer[2] = ticket
  elseif user then
    answer[2] = ticket_reply(r, user)
  end
end
return { outlook(r), answers }
