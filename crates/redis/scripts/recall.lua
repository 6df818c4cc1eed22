-- Put behind pool.lua where a pool may have to be made: ask and resize.
--
-- A server that was restarted without an append-only file, and one that was flushed, has forgotten leases
-- that are still good. They began before it forgot them, so they have run out one lease's length later;
-- until then nothing is given. It is noticed
--   by the server's run: it is not the one that wrote this pool, or it is younger than a lease;
--   by the pool's birth: it is not the one that this client knew.

-- Fences begin with the time and grow by one, so that they go on after everything was forgotten.
local function raise_fence(from)
  local first = tonumber(redis.call('HGET', pool, 'first')) or from
  redis.call('HSET', pool, 'fence', now, 'first', first + now - from)
  kept[8] = now
end

-- Makes the pool if there is none, and compares what is there with what the client knows.
local function recall(run, started, trusted, born, new_max)
  if not max then
    max = tonumber(new_max)
    redis.call('HSET', pool, 'max', max, 'born', now, 'run', run, 'fence', now, 'first', now)
    kept[6], kept[8] = string.format('%.0f', now), now
    if trusted ~= '1' then forgot(math.min(now, tonumber(started))) end
  elseif kept[7] ~= run then
    redis.call('HSET', pool, 'run', run)
    if trusted ~= '1' then
      forgot(math.min(now, tonumber(started)))
      if now > tonumber(kept[8]) then raise_fence(tonumber(kept[8])) end
    end
  end
  if born ~= '' and born ~= kept[6] then forgot(tonumber(kept[6])) end
end
