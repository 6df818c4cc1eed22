-- Sets the maximum. What is held stays held.
-- ARGV  max, and of the server: run, started, trusted, the pool's birth as this client knows it
recall(ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[1])
max = tonumber(ARGV[1])
redis.call('HSET', pool, 'max', max)
tidy()
tell()
return kept[6]
