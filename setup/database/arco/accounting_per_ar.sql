-- Accounting per AR: processor seconds, GiB seconds and GiB by month.
SELECT time, ar_number, cpu, mem, io FROM (SELECT date_trunc('month', start_time)::date AS time, ar_number, SUM(cpu) AS cpu, SUM(mem) AS mem, SUM(io) AS io FROM view_accounting WHERE start_time > (current_timestamp - interval '1 year') AND ar_number > 0 GROUP BY time, ar_number) AS tmp;
