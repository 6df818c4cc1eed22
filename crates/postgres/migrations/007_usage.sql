-- `usage` of one batch, and of one tenant over a time. Calls of no batch are not in the first, and cost
-- nothing there.
CREATE INDEX longshore_call_batch ON longshore_call (batch) WHERE batch IS NOT NULL;

CREATE INDEX longshore_call_tenant ON longshore_call (tenant, opened_at, id);
