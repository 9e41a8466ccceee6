-- Advanced Reservation by User: psql -v ar_owner=alice -f by_user.sql
-- The original selects neither ar_owner nor submission_time in its inner SELECT, which the outer one uses.
SELECT "ar_number", "submission_time" FROM(SELECT ar_number, ar_owner, ar_submission_time AS submission_time FROM sge_ar ) AS tmp WHERE "ar_owner" = :'ar_owner';
