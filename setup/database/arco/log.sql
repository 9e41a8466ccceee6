-- Advanced Reservation Log of one reservation: psql -v ar_number=12 -f log.sql
-- The original compares the number with ''.
SELECT "ar_number", "time", "event", "state", "message" FROM(SELECT ar_number, time, event, state, message FROM view_ar_log ) AS tmp WHERE "ar_number" = :'ar_number';
