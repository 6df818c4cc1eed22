-- Fast path: one permit, and no waiters.
if waiting == '0' and #ARGV == 2 and ARGV[2] == '0' then
  local weight = record and string.match(record, '^h:(%d+):')
  if weight then
    redis.call('HSET', pool, 'state', string.format('%s:%.0f:0:%s:%s:%s:%s:%s:%s',
      max, used - weight, fence, next_expiry, lost_at, max_ttl, created, run_id))
    redis.call('HDEL', pool, ARGV[1])
    redis.call('ZREM', expiries, ARGV[1])
  end
  return 1
end
