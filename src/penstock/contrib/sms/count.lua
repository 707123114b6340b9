-- Count one attempt of one message, once however often it is told; and its end, once.
-- KEYS  1 HASH of figures
--       2 HASH of the marks of this message: attempt → the send that was counted, end → 1
-- ARGV  1 seconds the marks are kept (0: none are made, the message has no id)
--       2 attempt
--       3 outcome: sent | failed | retried | rejected
--       4 microseconds spent on the message over all its attempts
--       5 the send's own name: the same one again is a call whose answer was lost, another one is
--         a second send of the same attempt
-- Returns 1, or 0 when this attempt had been counted before.
local figures, marks = KEYS[1], KEYS[2]
local keep, attempt = tonumber(ARGV[1]), ARGV[2]
local outcome, spent, send = ARGV[3], tonumber(ARGV[4]), ARGV[5]

local ended_before = false
if keep > 0 then
  if redis.call('HSETNX', marks, attempt, send) == 0 then
    if outcome == 'sent' and redis.call('HGET', marks, attempt) ~= send then
      redis.call('HINCRBY', figures, 'repeated', 1)
    end
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
elseif outcome == 'sent' then
  redis.call('HINCRBY', figures, 'repeated', 1)
end
return 1
