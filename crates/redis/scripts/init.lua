-- Makes a pool known if it is not; else says its maximum.
-- ARGV  a word, max, and of the server: run, started, trusted, the pool's birth as this client knows it
local its_max = max
recall(ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[2])
save()
return {born, its_max and string.format('%.0f', its_max) or ''}
