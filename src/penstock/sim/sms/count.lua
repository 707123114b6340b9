-- Count one attempt of one message, once however often it is told; and its end, once.
-- KEYS  1 HASH of figures
--       2 HASH of what was counted of this message: attempt → 1, end → 1
-- ARGV  1 seconds the marks are kept (0: none are made, the message has no id)
--       2 attempt
--       3 outcome: sent | failed | retried | rejected
--       4 microseconds spent on the message over all its attempts
-- Returns 1, or 0 when this attempt had been counted before.
local figures, marks = KEYS[1], KEYS[2]
local keep, attempt = tonumber(ARGV[1]), ARGV[2]
local outcome, spent = ARGV[3], tonumber(ARGV[4])

local ended_before = false
if keep > 0 then
  if redis.call('HSETNX', marks, attempt, 1) == 0 then
    return 0
  end
  redis.call('EXPIRE', marks, keep)
  if outcome ~= 'retried' then
    ended_before = redis.call('HSETNX', marks, 'end', 1) == 0
  end
end
if outcome ~= 'rejected' then
  redis.call('HINCRBY', figures, 'attempts', 1)
end
if not ended_before then
  redis.call('HINCRBY', figures, outcome, 1)
  if outcome ~= 'retried' then
    redis.call('HINCRBY', figures, 'spent_us', spent)
  end
end
return 1
