-- What a worker and its children have used, in microseconds; none if it does not say.
ALTER TABLE longshore_session ADD COLUMN cpu INTEGER;
