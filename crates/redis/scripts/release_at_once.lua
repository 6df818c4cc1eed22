-- The usual case: one permit, and nobody waits for it.
if waiting == '0' and #ARGV == 2 and ARGV[2] == '0' then
  local weight = record and string.match(record, '^h:(%d+):')
  if weight then
    redis.call('HSET', pool, 'state', string.format('%s:%.0f:0:%s:%s:%s:%s:%s:%s',
      max, used - weight, fence, nearest, lost, longest, born, run))
    redis.call('HDEL', pool, ARGV[1])
    redis.call('ZREM', ends, ARGV[1])
  end
  return 1
end
