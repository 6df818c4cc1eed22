-- Put behind pool.lua where a pool may have to be made: ask and resize.
--
-- A server that was restarted without an append-only file, and one that was flushed, has forgotten leases
-- that are still good. They began before it forgot them, so they have run out one lease's length later;
-- until then nothing is given. It is noticed
--   by the server's run: it is not the one that wrote this pool, or it is younger than a lease;
--   by the pool's birth: it is not the one that this client knew.

-- Small hashes are lists that are searched from their beginning; a long text makes it a table.
local ABOUT = 'A bounded pool of Longshore: how it stands, who holds and who waits. See docs/redis.md.'

-- Fences begin with the time and grow by one, so that they go on after everything was forgotten. `first`
-- is where counting began.
local function make(its_max)
  max, fence, born = tonumber(its_max), now, string.format('%.0f', now)
  -- A holder may have known already that all is forgotten.
  local at, its_ttl = string.match(redis.call('HGET', pool, 'forgot') or '', '(%d+):(%d+)')
  if at then lost, longest = tonumber(at), tonumber(its_ttl) end
  redis.call('HDEL', pool, 'forgot')
  redis.call('HSET', pool, 'first', now, 'about', ABOUT)
end

-- Makes the pool if there is none, and compares what is there with what the client knows.
local function recall(its_run, started, trusted, known, its_max)
  if not max then make(its_max) end
  if run ~= its_run then
    run = its_run
    if trusted ~= '1' then
      forgot(math.min(now, tonumber(started)))
      if now > fence then
        redis.call('HINCRBY', pool, 'first', string.format('%.0f', now - fence))
        fence = now
      end
    end
  end
  if known ~= '' and known ~= born then forgot(tonumber(born)) end
end
