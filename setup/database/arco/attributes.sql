-- Advanced Reservation Attributes of one reservation: psql -v ar_number=12 -f attributes.sql
-- The original has a comma before the outer FROM, which is no SQL, and compares the number with ''.
SELECT "ar_number", "owner", "submission_time", "name", "account", "start_time", "end_time", "granted_pe" FROM (SELECT ar_number, owner, submission_time, name, account, start_time, end_time, granted_pe FROM view_ar_attribute) AS tmp WHERE "ar_number" = :'ar_number';
