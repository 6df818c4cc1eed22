-- What decides a call's price beside its tokens: how it was made (0 by itself, 1 in a provider's batch; of
-- those written before, nothing: by itself), the provider's tier, and what was cached for an hour.
ALTER TABLE longshore_call ADD COLUMN mode INTEGER CHECK (mode IN (0, 1));
ALTER TABLE longshore_call ADD COLUMN tier TEXT;
ALTER TABLE longshore_call ADD COLUMN tokens_cache_write_long INTEGER
    CHECK (tokens_cache_write_long >= 0);
