-- Creates a pool if it does not exist; otherwise replies with its maximum.
-- ARGV  a placeholder, max, then of the server: run id, start time, whether it keeps its data; the pool's
--       creation time as this client knows it
local its_max = max
detect_data_loss(ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[2])
save()
return {created, its_max and string.format('%.0f', its_max) or ''}
