-- SCAN: some records of a partition in no order, without those that cannot match.
--
-- KEYS  a group: records, leases
-- ARGV  1 groups (msgpack): { first key }
--       2 cursor ('0' begins) · 3 about how many to look at · 4 state's number or '' · 5 route or ''
--       6 earliest due · 7 latest due
-- →     a group: { next cursor ('0': that was all), records read, their bytes, id, record, lease or nil … }
-- @include stores/redis/messages/record.lua

local groups = cmsgpack.unpack(ARGV[1])
local cursor = ARGV[2]
local number = ARGV[3]
local state = tonumber(ARGV[4])
local route = ARGV[5]
local due_from = tonumber(ARGV[6])
local due_to = tonumber(ARGV[7])
local LEASED = 1

local k = groups[1][1]
local found = redis.call('HSCAN', KEYS[k + 1], cursor, 'COUNT', number)
local pairs_ = found[2]
local answer = { found[1], #pairs_ / 2, 0 }
for i = 1, #pairs_, 2 do
  local id, record = pairs_[i], pairs_[i + 1]
  answer[3] = answer[3] + #record
  local h = read_head(record)
  if h.due >= due_from and h.due <= due_to and h.state ~= ELSEWHERE
    and (route == '' or route_of(record, h.at) == route) then
    local lease = redis.call('HGET', KEYS[k + 2], id)
    local shown = lease and LEASED or h.state
    if not state or shown == state then
      answer[#answer + 1] = id
      answer[#answer + 1] = record
      answer[#answer + 1] = lease
    end
  end
end
return { answer }
