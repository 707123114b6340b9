-- DISPATCH: pass promotions on and acknowledge them, in one step.
--
-- KEYS  1 stream ENTRY · 2 stream DISPATCH
-- ARGV  1 consumer group · 2 … (entry, user, event, instance, token) each
-- →     how many were passed on; an entry acknowledged before is not repeated

local done = 0
for i = 2, #ARGV, 5 do
  if redis.call('XACK', KEYS[1], ARGV[1], ARGV[i]) == 1 then
    redis.call('XADD', KEYS[2], '*', 'userId', ARGV[i + 1], 'eventId', ARGV[i + 2],
      'instanceId', ARGV[i + 3], 'entryToken', ARGV[i + 4])
    done = done + 1
  end
end
return done
