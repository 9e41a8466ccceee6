"""Intervals for sums: days, weeks and months in UTC."""

#: Lengths of pieces, as PostgreSQL cuts dates to them.
BUCKETS = ("day", "week", "month")
#: When the piece of time begins in which a date is.
CUT = "extract(epoch FROM date_trunc('{bucket}', to_timestamp({date}) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')::bigint"
