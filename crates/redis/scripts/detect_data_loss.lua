-- Creates pools and detects data loss. Appended to pool_ops.lua where a pool may have to be created.
--
-- A server that restarted without an append-only file, or was flushed, has lost leases that are still valid. They
-- began before the loss, so they expire at most one TTL after it; until then nothing is granted. Data loss is
-- detected
--   by the server's run id: another run wrote this pool, or the server is younger than a lease;
--   by the pool's creation time: it differs from the one that this client knows.

-- Redis searches small hashes linearly; one long value turns the hash into a hash table.
local ABOUT = 'A bounded pool of Longshore: its state, holders and waiters. See docs/redis.md.'

-- Fences start at the current time and grow by one, so that they keep growing after a data loss. `first_fence` is the
-- fence at which counting began.
local function create_pool(its_max)
  max, fence, created = tonumber(its_max), now, string.format('%.0f', now)
  -- A holder may have noticed the data loss before (see extend.lua).
  local at, its_ttl = string.match(redis.call('HGET', pool, 'data_loss_report') or '', '(%d+):(%d+)')
  if at then lost_at, max_ttl = tonumber(at), tonumber(its_ttl) end
  redis.call('HDEL', pool, 'data_loss_report')
  redis.call('HSET', pool, 'first_fence', now, 'about', ABOUT)
end

-- Creates the pool if it does not exist, and compares its run and creation time with what the client knows.
local function detect_data_loss(server_run, started, trusted, known, its_max)
  if not max then create_pool(its_max) end
  if run_id ~= server_run then
    run_id = server_run
    if trusted ~= '1' then
      record_data_loss(math.min(now, tonumber(started)))
      if now > fence then
        redis.call('HINCRBY', pool, 'first_fence', string.format('%.0f', now - fence))
        fence = now
      end
    end
  end
  if known ~= '' and known ~= created then record_data_loss(tonumber(created)) end
end
