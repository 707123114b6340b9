-- WINDOW: entries of ordered indexes that come after a place, in order.
--
-- KEYS  a group: ordered indexes of one partition
-- ARGV  1 groups (msgpack): { first key, number of keys }
--       2 due · 3 id: the place, itself left out · 4 due that is too late · 5 entries a key at most
-- →     a group: a key: { id, due … }

local groups = cmsgpack.unpack(ARGV[1])
local due = ARGV[2]
local id = ARGV[3]
local too_late = tonumber(ARGV[4])
local limit = tonumber(ARGV[5])

-- The rank of the first entry after (due, id): the ids of one due are in order, so halve.
local function rank_after(key)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. due)
  local high = low + redis.call('ZCOUNT', key, due, due)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZRANGE', key, middle, middle)[1] <= id then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local answers = {}
for i = 1, #groups do
  local k, number = unpack(groups[i])
  local answer = {}
  for n = 1, number do
    local rank = rank_after(KEYS[k + n])
    local entries = redis.call('ZRANGE', KEYS[k + n], rank, rank + limit - 1, 'WITHSCORES')
    local kept = {}
    for j = 1, #entries, 2 do
      if tonumber(entries[j + 1]) >= too_late then break end
      kept[j], kept[j + 1] = entries[j], entries[j + 1]
    end
    answer[n] = kept
  end
  answers[i] = answer
end
return answers
