-- Whether this alert may be told now. The key goes by itself when the next may be.
-- KEYS  the alert's   ARGV  a token of the caller's own, milliseconds
-- A repeat after a lost answer is recognised by the token.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0
