-- What time it is, where it was not asked yet.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
