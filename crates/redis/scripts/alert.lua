-- Rate-limits an alert: the first caller may send it, others not until the key expires.
-- KEYS  the alert's key   ARGV  a random token of the caller, milliseconds until the key expires
-- A repeat after a lost reply is recognised by the token.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0
