-- Where the simulated brokers of an event begin to watch: the first of them decides for all.
--
-- KEYS  1 the watch (HASH) · 2 slots in use · 3 stream ENTRY
-- ARGV  1 how long the watch is remembered (ms)
-- →     slots in use, last entry then

if redis.call('EXISTS', KEYS[1]) == 0 then
  local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
  redis.call('HSET', KEYS[1], 'slots', redis.call('GET', KEYS[2]) or '0', 'entry',
    last and last[1] or '0-0')
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('HMGET', KEYS[1], 'slots', 'entry')
