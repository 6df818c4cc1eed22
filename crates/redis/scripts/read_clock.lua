-- Reads the server's clock, in scripts without acquire_fast.lua.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
