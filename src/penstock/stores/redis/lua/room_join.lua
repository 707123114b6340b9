-- JOIN: line up at the end of the lane, once.
--
-- KEYS  a room's 13
-- ARGV  1 now · 2 settings of rooms nobody has PUT · 3 channel of wake-ups · 4 the room's name
--       5 … (user, lane, instance) each
-- →     false: no such room; or { outlook, answers }: { 'new' or 'known', ticket },
--       { 'closed' } or { 'unknown_lane' }

local now = clamped(tonumber(ARGV[1]))
local r = load_room(0, now, ARGV[2])
if not r then return false end

local function next_number(user)
  if r.state == 'scheduled' and r.lottery then
    return tonumber(string.sub(redis.sha1hex(r.seed .. ':' .. user), 1, 10), 16)
  end
  r.seq = math.max(r.seq + 1, now * 1000)
  return r.seq
end

local function line_up(user, lane, instance)
  local score = string.format('%.6f', next_number(user) / 1000000)
  redis.call('ZADD', lane_key(r, lane), score, user)
  redis.call('HSET', KEYS[RECORDS], user,
    string.format('{"instanceId":%s,"joinedAt":%.3f}', cjson.encode(instance), now / 1000))
  redis.call('HSET', KEYS[USERS], user, lane)
  redis.call('ZADD', KEYS[SEEN], now, user)
end

local new, answers = {}, {}
for i = 5, #ARGV, 3 do
  local user, lane, instance = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local packed = redis.call('HGET', KEYS[TICKETS], user)
  local ticket = packed and cmsgpack.unpack(packed)
  if ticket and (ticket[STATE] == 'A' or ticket[STATE] == 'E') then
    answers[#answers + 1] = { 'known', user }
  elseif find_waiting(r, user) then
    saw(r, user, now)
    answers[#answers + 1] = { 'known', user }
  elseif r.state == 'closed' then
    answers[#answers + 1] = { 'closed', false }
  elseif lane ~= DEFAULT and not r.index[lane] then
    answers[#answers + 1] = { 'unknown_lane', false }
  else
    if ticket then
      redis.call('HDEL', KEYS[TICKETS], user)
      redis.call('ZREM', KEYS[GONE], user)
    end
    line_up(user, lane, instance)
    new[#new + 1] = user
    answers[#answers + 1] = { 'new', user }
  end
end
if #new > 0 then
  redis.call('HINCRBY', KEYS[ROOM], 'joined', #new)
  redis.call('HSET', KEYS[ROOM], 'seq', r.seq)
  if r.state == 'open' and r.slots < r.capacity then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
end
for _, answer in ipairs(answers) do
  if answer[2] then answer[2] = ticket_reply(r, answer[2]) end
end
return { outlook(r), answers }
