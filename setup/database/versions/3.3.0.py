"""Schema changes of release 3.3.0."""

from alembic import op

revision = "3.3.0"
down_revision = "3.2.0"
#: The oldest release whose programs can use the new schema.
oldest = "3.2.0"


def upgrade():
    """Create what new installations have."""
    op.execute("ALTER TABLE public.schema ADD COLUMN revision varchar(32) NOT NULL DEFAULT ''")
    op.execute(
        "CREATE TABLE public.task_runs (task varchar(32) PRIMARY KEY, last_success bigint NOT NULL DEFAULT 0)"
    )
    op.execute(
        "CREATE TABLE public.outbox (outbox_id bigserial PRIMARY KEY, date bigint NOT NULL DEFAULT 0,"
        " job_user varchar(255) NOT NULL DEFAULT '', message text NOT NULL DEFAULT '')"
    )
    op.execute("CREATE TABLE public.server_state (name varchar(32) PRIMARY KEY, value text NOT NULL DEFAULT '')")
    op.execute(
        "CREATE TABLE public.launch_holds (hold_id bigserial PRIMARY KEY,"
        " fault varchar(16) NOT NULL DEFAULT 'ACCOUNT' CHECK (fault IN"
        " ('ACCOUNT', 'HOME', 'PROLOGUE', 'NODE_SETUP', 'SERVER_SCRIPT', 'SERVER_EPILOGUE', 'CONFIGURATION')),"
        " job_user varchar(255) NOT NULL DEFAULT '', node varchar(255) NOT NULL DEFAULT '',"
        " began bigint NOT NULL DEFAULT 0, failures integer NOT NULL DEFAULT 0, next_try bigint NOT NULL DEFAULT 0,"
        " confirmed varchar(3) NOT NULL DEFAULT 'NO' CHECK (confirmed IN ('YES', 'NO')),"
        " trial_job bigint NOT NULL DEFAULT 0, reason text NOT NULL DEFAULT '')"
    )
    op.execute("CREATE UNIQUE INDEX launch_holds_fault ON public.launch_holds (fault, job_user)")
    op.execute(
        "CREATE INDEX jobs_waiting_user ON public.jobs (job_user) WHERE state IN ('Waiting', 'Hold', 'toLaunch')"
    )
    op.execute("CREATE INDEX job_ends_code ON public.job_ends (code, job_id)")
    op.execute(
        "CREATE TABLE public.projects (project_name varchar(255) PRIMARY KEY, description text NOT NULL DEFAULT '',"
        " parent varchar(255), state varchar(8) NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed')),"
        " start_date bigint NOT NULL DEFAULT 0, end_date bigint NOT NULL DEFAULT 0,"
        " shares integer NOT NULL DEFAULT 1)"
    )
    op.execute("CREATE INDEX projects_parent ON public.projects (parent)")
    op.execute(
        "CREATE TABLE public.project_members (project_name varchar(255), entry varchar(255),"
        " role varchar(8) NOT NULL DEFAULT 'member' CHECK (role IN ('member', 'manager')),"
        " shares integer NOT NULL DEFAULT 1, PRIMARY KEY (project_name, entry))"
    )
    op.execute("CREATE INDEX project_members_entry ON public.project_members (entry)")
    op.execute(
        "CREATE TABLE public.user_settings (user_name varchar(255) PRIMARY KEY,"
        " default_project varchar(255) NOT NULL DEFAULT '')"
    )
    op.execute(
        "CREATE TABLE public.project_budgets (project_name varchar(255), period_start bigint,"
        " period_end bigint NOT NULL DEFAULT 0, resource_hours double precision NOT NULL,"
        " on_exhaustion varchar(10) NOT NULL DEFAULT 'refuse' CHECK (on_exhaustion IN"
        " ('refuse', 'wait', 'besteffort')), notified integer NOT NULL DEFAULT 0,"
        " PRIMARY KEY (project_name, period_start))"
    )
    op.execute(
        "CREATE TABLE public.accounting_costs (window_start bigint, window_stop bigint,"
        " accounting_project varchar(255), extra double precision NOT NULL,"
        " PRIMARY KEY (window_start, window_stop, accounting_project))"
    )
    op.execute(
        "CREATE INDEX accounting_costs_by_project ON public.accounting_costs (accounting_project, window_start)"
    )
    op.execute(
        "ALTER TABLE public.moldable_job_descriptions ADD COLUMN resources integer NOT NULL DEFAULT 0,"
        " ADD COLUMN memory_per_node bigint NOT NULL DEFAULT 0, ADD COLUMN memory_per_core bigint NOT NULL DEFAULT 0"
    )
    op.execute(
        "CREATE TABLE public.audit_log (audit_id bigserial PRIMARY KEY, date bigint NOT NULL DEFAULT 0,"
        " person varchar(255) NOT NULL DEFAULT '', via varchar(8) NOT NULL DEFAULT 'command'"
        " CHECK (via IN ('command', 'api', 'page', 'file', 'sql')),"
        " action varchar(32) NOT NULL DEFAULT '', object text NOT NULL DEFAULT '',"
        " former_value text NOT NULL DEFAULT '', new_value text NOT NULL DEFAULT '', reason text NOT NULL DEFAULT '')"
    )
    op.execute("CREATE INDEX audit_log_date ON public.audit_log (date)")
    op.execute(
        "CREATE TABLE public.announcements (announcement_id bigserial PRIMARY KEY, date bigint NOT NULL DEFAULT 0,"
        " author varchar(255) NOT NULL DEFAULT '', until bigint NOT NULL DEFAULT 0, text text NOT NULL DEFAULT '')"
    )
    op.execute(
        "CREATE TABLE public.state_reasons (resource_id integer PRIMARY KEY, date bigint NOT NULL DEFAULT 0,"
        " author varchar(255) NOT NULL DEFAULT '', reason text NOT NULL DEFAULT '',"
        " node_check varchar(16) NOT NULL DEFAULT '', job_user varchar(255) NOT NULL DEFAULT '')"
    )
    op.execute(
        "CREATE TABLE public.occupancy_hours (stop_day integer NOT NULL, hour integer NOT NULL,"
        " resource_seconds bigint NOT NULL DEFAULT 0, PRIMARY KEY (stop_day, hour))"
    )
    op.execute(
        "CREATE TABLE public.server_generation (generation bigint PRIMARY KEY,"
        " server_name varchar(255) NOT NULL DEFAULT '', since bigint NOT NULL DEFAULT 0,"
        " take_overs bigint NOT NULL DEFAULT 0, wanted varchar(255) NOT NULL DEFAULT '',"
        " wanted_at bigint NOT NULL DEFAULT 0, wanted_reason varchar(255) NOT NULL DEFAULT '',"
        " count_requested_at bigint NOT NULL DEFAULT 0)"
    )
    op.execute("INSERT INTO public.server_generation (generation) VALUES (0)")
    op.execute(
        "CREATE TABLE public.servers (server_name varchar(255) PRIMARY KEY, host varchar(255) NOT NULL DEFAULT '',"
        " server_port integer NOT NULL DEFAULT 0, role varchar(8) NOT NULL DEFAULT 'stopped'"
        " CHECK (role IN ('active', 'standby', 'fenced', 'stopped')), since bigint NOT NULL DEFAULT 0,"
        " last_seen bigint NOT NULL DEFAULT 0, version varchar(32) NOT NULL DEFAULT '',"
        " config_digest varchar(64) NOT NULL DEFAULT '', sees_nodes integer NOT NULL DEFAULT 0,"
        " counted_at bigint NOT NULL DEFAULT 0, chosen_at bigint NOT NULL DEFAULT 0)"
    )
    op.execute(
        "CREATE TABLE public.job_curves (job_id bigint, network_address varchar(100), begin bigint NOT NULL DEFAULT 0,"
        " step integer NOT NULL DEFAULT 0, gpus integer NOT NULL DEFAULT 0, cpu integer[] NOT NULL DEFAULT '{}',"
        " memory integer[] NOT NULL DEFAULT '{}', gpu integer[] NOT NULL DEFAULT '{}',"
        " gpu_memory integer[] NOT NULL DEFAULT '{}', PRIMARY KEY (job_id, network_address))"
        " WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02)"
    )


def downgrade():
    """Refuse: the way back is the backup."""
    raise NotImplementedError("there is no way back: restore the backup")
