"""Every option of oar.conf, declared once: key, default, kind, documentation, older names.

The order is that of the sample file.
"""

from collections.abc import Mapping
from types import MappingProxyType

from oar.lib.config.kinds import (
    ADDRESS_PATH,
    ANY_INTEGER,
    BOOLEAN,
    BOOT_LIMITS,
    CGROUP_MANAGER,
    DATABASE_HOSTS,
    DATABASE_TYPE,
    DAYS,
    FLOAT,
    FRONTEND_PROGRAM,
    HOST,
    IDLE_CPU_RULES,
    IDLE_GPU_RULES,
    INTEGER,
    ITEMS,
    KEPT_GROUPS,
    LOG_FILE,
    LOG_FORMAT,
    META_SCHEDULER,
    NETWORKS,
    NODE_COMMAND,
    NODE_PATH,
    NUMBERS,
    PATH,
    PATTERNS,
    PORT,
    PORTS,
    POSITIVE,
    PROPERTY,
    PROXIES,
    REQUEST,
    SECONDS,
    SERVER_COMMAND,
    SERVER_COMMANDS,
    SERVER_DIRECTORY,
    SERVER_FILE,
    SERVER_HOSTS,
    SERVER_OUTPUT,
    SITE_PROGRAM,
    SOME_SECONDS,
    TEXT,
    WORDS,
    Key,
    Target,
    Values,
    Words,
    at_least,
    one_of,
    or_empty,
    per_queue,
    some_of,
    unset,
)
from oar.lib.jobs.states import BudgetCount, DependencyCondition, JobPriority, ProjectMode

#: Why there is no proxy of ours: a page of a job would come from the origin of the API, with its cookies.
_JOB_PAGES = "What jobs serve is reached by a tunnel through a frontend: it has no part in sessions of our pages."
_ZERO: Mapping[str, float] = MappingProxyType({"_": 0.0})
_NO: Mapping[str, bool] = MappingProxyType({"_": False})
_NOBODY: Mapping[str, Words] = MappingProxyType({"_": ()})
_WHOLE_ZERO: Mapping[str, int] = MappingProxyType({"_": 0})


class Config(Values):
    """The values of oar.conf."""

    __slots__ = ()

    # database
    db_type = Key(DATABASE_TYPE, "Pg", "Kind of the database: PostgreSQL is the only one.")
    db_hostname = Key(
        DATABASE_HOSTS,
        "localhost",
        "Host of the database, or the directory of its socket. Several hosts: a primary and its replicas, such as"
        " pg1 pg2:5433.",
    )
    db_port = Key(PORT, 5432, "Port of the database, on hosts for which DB_HOSTNAME names none.")
    db_base_name = Key(TEXT, "oar", "Name of the database.")
    db_base_login = Key(TEXT, "oar", "Account that reads and writes.")
    db_base_passwd = Key(TEXT, "", "Its password.", secret=True)
    db_base_login_ro = Key(TEXT, "oar_ro", "Account under which SQL text given by users is evaluated; it only reads.")
    db_base_passwd_ro = Key(TEXT, "", "Its password.", secret=True)
    user_sql_timeout = Key(SOME_SECONDS, 5, "Time limit of one condition given by a user.")
    user_sql_round_seconds = Key(
        FLOAT, 1.0, "Seconds that the conditions of users may take in a scheduling pass; those of each user a fifth."
    )
    user_sql_full_users = Key(WORDS, (), "Users who may write conditions in all of PostgreSQL's SQL.")
    db_notify = Key(BOOLEAN, True, "Tell listeners of changes by NOTIFY: commands that wait, programs of the site.")
    max_db_connection_timeout = Key(
        SOME_SECONDS, 30, "Commands give up reaching the database, or waiting for a free connection, after this time."
    )

    # server and bus
    server_hostnames = Key(
        SERVER_HOSTS,
        ("localhost",),
        "Name of the server: commands and nodes connect to it. Several servers: the names of all, such as server1"
        " server2.",
        key="SERVER_HOSTNAME",
    )
    server_name = unset(
        HOST, "The name in SERVER_HOSTNAME of this host, if its host names and addresses do not identify it."
    )
    server_port = Key(PORT, 6666, "Port on which nodes and old clients write lines.")
    appendice_server_port = Key(PORT, 6670, "Port on which commands and the API notify the server.")
    bipbip_commander_server = Key(HOST, "localhost", "Address of the port for jobs of external meta-schedulers.")
    bipbip_commander_port = Key(PORT, 6671, "That port; 0 = off.")
    greta_server = Key(HOST, "localhost", "Address of the port for energy orders of external meta-schedulers.")
    greta_port = Key(PORT, 0, "That port; 0 = off.")
    oar_run_dir = Key(PATH, "/run/oar", "Directory of the server's sockets and of its pid file.")
    allowed_networks = Key(
        NETWORKS,
        ("127.0.0.1/32", "0.0.0.0/0", "::/0"),
        "Networks whose hosts may connect to SERVER_PORT and submit jobs.",
    )
    meta_sched_cmd = Key(META_SCHEDULER, "kao", "Meta-scheduler: kao, or a program, relative to OARDIR.")
    module_max_duration = Key(SOME_SECONDS, 600, "Time limit of one pass of a module; then it is stopped.")
    module_max_memory = Key(
        FLOAT,
        25.0,
        "Percentage of the machine's memory. An idle module that holds more than that, and more than its work needs, is"
        " restarted; 0 = no limit.",
    )
    sarko_frequency = Key(SOME_SECONDS, 30, "Maximum time between two checks for passed deadlines.")
    max_concurrent_jobs_starting_or_terminating = Key(
        POSITIVE, 25, "Launches and ends of jobs treated at a time.", aliases="MAX_CONCURRENT_JOB_TERMINATIONS"
    )
    bipbip_workers = Key(POSITIVE, 2, "Processes that launch, end and signal jobs. Each uses at most one processor.")
    bipbip_max_duration = Key(SOME_SECONDS, 1800, "Time limit of an action on a job; then it is cancelled.")
    launch_unknown_timeout = Key(SECONDS, 120, "Time for which a node is queried whether a job has started there.")
    job_curves = Key(
        BOOLEAN, True, "Record every 30 s what running jobs use on their nodes: oarstat --usage, job page."
    )
    idle_gpu_rules = Key(
        IDLE_GPU_RULES,
        (),
        "What is done about jobs that leave their GPUs idle, such as 8 GPU below 5 % for 2 h: mail, then end after 1 h;"
        " rules are separated by ;. Empty: nothing.",
    )
    idle_cpu_rules = Key(
        IDLE_CPU_RULES,
        (),
        "The same for cores, such as 16 CPU below 2 % for 4 h: mail. Empty: nothing.",
    )
    job_probe_frequency = Key(SECONDS, 300, "Time between two checks of a running job's node; 0 = only at start.")
    node_lost_timeout = Key(SECONDS, 75, "A job ends if its node does not answer for this time; 0 = at its walltime.")
    max_automatic_resubmissions = Key(INTEGER, 3, "Maximum number of consecutive automatic resubmissions of a job.")
    oarsub_notify_timeout = Key(SOME_SECONDS, 3, "Time limit to reach an oarsub that waits for its job.")

    # log and mail
    log_level = Key(at_least(0, "1 | 2 | 3"), 2, "1 errors, 2 warnings and infos too, 3 debug too.")
    log_file = Key(LOG_FILE, "/var/log/oar.log", "Where the server logs.")
    log_format = Key(LOG_FORMAT, "%s|%s|%s/%s|%s|%s", "Type, date, module, pid, job, message of a line; or json.")
    log_categories = Key(ITEMS, ("all",), "What is logged beside errors and warnings: main, scheduler, energy; or all.")
    completion_log = unset(SERVER_OUTPUT, "File with one JSON object for each ended job; not set = none.")
    metrics_file = unset(SERVER_OUTPUT, "File for Prometheus' node exporter, written each 15 s; not set = none.")
    mail_smtp_server = unset(TEXT, "Mail server; without it, sender and recipient the administrator gets no mail.")
    mail_sender = unset(TEXT, "Sender of the server's mails.")
    mail_recipient = unset(ITEMS, "Administrators who get mails.")
    instance_name = unset(TEXT, "Name of this cluster in subjects of mails; the server's host name if not set.")
    debug_remote_commands = Key(BOOLEAN, False, "Log the output of actions on nodes.")

    # submission and display
    oarsub_default_resources = Key(REQUEST, "/resource_id=1", "Request of a job that asks for no resources.")
    oarsub_nodes_resources = Key(TEXT, "network_address", "Property meant by 'nodes' in a request.")
    oarsub_force_job_key = Key(BOOLEAN, False, "Give each job a key, as with oarsub -k.")
    oarsub_store_adm_rules_outputs = Key(BOOLEAN, False, "Keep what admission rules print as events of the job.")
    default_job_walltime = Key(SOME_SECONDS, 7200, "Walltime if neither the user nor a rule sets one.")
    admission_rules_in_files = Key(BOOLEAN, False, "Read the admission rules from files, not from the database.")
    admission_rules_path = Key(SERVER_DIRECTORY, "/etc/oar/admission_rules.d", "Directory of these files.")
    admission_rules_timeout = Key(SOME_SECONDS, 10, "Time limit of all admission rules together.")
    admission_rules_ack_empty = Key(BOOLEAN, False, "Start the server although no admission rule is enabled.")
    job_types_extra = Key(PATTERNS, (r"origin=\w+",), "The site's own job types.")
    dependency_condition = Key(
        one_of(DependencyCondition.OK, DependencyCondition.ANY, DependencyCondition.NOT_OK, DependencyCondition.START),
        DependencyCondition.OK,
        "How a job must have ended that others wait for with oarsub -a.",
    )
    memory_property = unset(
        PROPERTY,
        "Property of resources with the MiB of memory of their node; not set = memory of jobs is not counted.",
    )
    memory_default_per_core = Key(
        INTEGER, 0, "MiB for each core of jobs that ask for no memory; 0 = their memory is not counted."
    )
    max_alternatives = Key(POSITIVE, 50, "Maximum number of alternatives (-l) of a job.")
    max_array_size = Key(POSITIVE, 10000, "Maximum number of jobs in an array.")
    max_kept_bytes_per_user = Key(
        POSITIVE,
        67108864,
        "Maximum size in bytes of the stored scripts and --env variables of all jobs of a user that have not ended.",
    )
    oarsub_script_resources = Key(
        one_of("add", "replace"), "add", "Whether -l in a script adds to -l on the command line or is replaced by it."
    )
    oarsub_local_address = unset(HOST, "Address of this frontend that the server calls back; its host name if not set.")
    oarsub_callback_ports = unset(PORTS, "Ports on which oarsub -I and -r wait for the server; not set = any.")
    apps_directory = Key(PATH, "/etc/oar/apps.d", "Directory with the site's programs for oarsub --app.")
    apps_ports = Key(PORTS, (20000, 29999), "Ports of nodes on which the programs of oarsub --app listen.")
    oarstat_private = Key(BOOLEAN, False, "Hide command and request of other users' jobs.")
    queue = Key(TEXT, "default", "Queue of a job that names none.")
    project = Key(TEXT, "default", "Project of a job that names none.")
    projects = Key(
        one_of(ProjectMode.FREE, ProjectMode.KNOWN, ProjectMode.MEMBERS),
        ProjectMode.FREE,
        "Which projects a job may have: any text; open ones that exist; of these, those of its user.",
    )
    budget_counts = Key(
        one_of(BudgetCount.USE, BudgetCount.REQUESTS),
        BudgetCount.USE,
        "What counts against the budget of a project: what jobs used; also what live and waiting jobs request.",
    )
    project_managers_control_jobs = Key(
        BOOLEAN, False, "Managers of a project may hold, resume, delete and fully see its jobs and those below it."
    )
    signal = Key(at_least(1, "number of a signal"), 12, "Signal that asks a job to write a checkpoint.")
    users_allowed_hold_resume = Key(BOOLEAN, False, "Users may suspend and resume their own running jobs.")
    job_name_by_script = Key(
        BOOLEAN,
        False,
        "A job without a name gets that of its script or program. Its output files keep their names without it.",
    )
    array_output_by_index = Key(
        BOOLEAN,
        False,
        "Output files of array jobs are called OAR.<array id>_<index>.stdout by default, not OAR.<job id>.stdout.",
    )
    oarstat_default_output_format = Key(at_least(1, "1 | 2 | 3 | 4"), 1, "Layout of oarstat's table.")
    oarstat_show_other_users_initial_request = Key(BOOLEAN, False, "Show the request of other users' jobs.")
    advance_reservation_validation_hook_exec_file = unset(
        FRONTEND_PROGRAM, "Run on the frontend when a reservation is accepted or refused, for 60 s: job id, 1 or 0."
    )
    commands_processes = Key(
        POSITIVE,
        16,
        "Processes of oar-commands that work at the same time, with two database connections each. One user gets at"
        " most a quarter.",
    )

    # desktop computing
    desktop_computing_allow_create_node = Key(BOOLEAN, False, "An unknown agent may create its resource.")
    desktop_computing_expiry = Key(SOME_SECONDS, 300, "An agent that sends no request for this time is Suspected.")
    stagein_dir = Key(PATH, "/var/lib/oar/stageins", "Files of oarsub --stagein.")
    stageout_dir = Key(PATH, "/var/lib/oar/stageouts", "Results of desktop computing jobs.")
    desktop_computing_shared_directories = Key(
        BOOLEAN,
        False,
        "With several servers: all and the API share STAGEIN_DIR and STAGEOUT_DIR. no: desktop_computing jobs are"
        " refused.",
    )
    stagein_cache_expiry = Key(at_least(0, "hours"), 144, "Age at which these files are removed.")

    # execution
    detach_job_from_server = Key(BOOLEAN, True, "no: the connection to the node stays open during the job.")
    oarexec_debug_mode = Key(BOOLEAN, False, "oarexec logs on the node, in OAR_RUNTIME_DIRECTORY/oar.log.")
    oar_runtime_directory = Key(
        NODE_PATH,
        "/var/lib/oar",
        "Directory of the jobs' files on nodes, on a local disk.",
        aliases="OAREXEC_DIRECTORY",
    )
    node_file_db_field = Key(TEXT, "network_address", "Property written in a job's node file.")
    node_file_db_field_distinct_values = Key(TEXT, "resource_id", "One line of it for each value of this property.")
    deploy_hostname = Key(
        HOST, "", "Host of deploy jobs' commands; the active server if not set.", same_as="server_hostname"
    )
    cosystem_hostname = Key(
        HOST, "", "Host of cosystem jobs' commands; the active server if not set.", same_as="server_hostname"
    )
    deploy_cosystem_job_exec_system = Key(
        one_of("none", "systemd-run"), "none", "How commands of deploy and cosystem jobs are started."
    )
    frontend_command_processes = Key(
        INTEGER, 1024, "Processes and threads of a deploy or cosystem job, or a command of a notice; 0 = no limit."
    )
    frontend_command_memory = Key(INTEGER, 4096, "Memory of the same in MiB; 0 = no limit.")
    prologue_exec_file = unset(NODE_COMMAND, "Run on a job's first node before it; ~oar/oar_prologue if not set.")
    epilogue_exec_file = unset(NODE_COMMAND, "Run on a job's first node after it; ~oar/oar_epilogue if not set.")
    node_prologue_file = unset(NODE_PATH, "Run as root on each node of a job before it.")
    node_epilogue_file = unset(NODE_PATH, "Run as root on each node of a job after it.")
    prologue_epilogue_timeout = Key(SOME_SECONDS, 60, "Time limit of each of these four programs.")
    server_prologue_exec_file = unset(
        SERVER_COMMAND, "Run on the server before each job.", aliases="SERVER_SCRIPT_EXEC_FILE"
    )
    server_epilogue_exec_file = unset(SERVER_COMMAND, "Run on the server after each job.")
    server_prologue_epilogue_timeout = Key(SOME_SECONDS, 60, "Time limit of each of them.")
    passive_job_hook_exec_file = unset(NODE_PATH, "Run as root on the first node before a passive job's command.")
    interactive_job_hook_exec_file = unset(
        NODE_PATH, "Run as root on the first node before an interactive job's shell."
    )
    interactive_connect_timeout = Key(
        SOME_SECONDS, 120, "An interactive job ends if its user does not connect within this time."
    )
    job_kill_grace = Key(SECONDS, 5, "Time between SIGTERM and SIGKILL for a job's processes.")
    jobdel_softwalltime = Key(
        SOME_SECONDS, 60, "A kill that had no effect is repeated after this time.", aliases="LEON_SOFT_WALLTIME"
    )
    jobdel_walltime = Key(
        SOME_SECONDS, 300, "A job whose kill had no effect is given up after this time.", aliases="LEON_WALLTIME"
    )

    # remote access
    openssh_cmd = Key(SERVER_COMMAND, "/usr/bin/ssh -p 6667 -e none", "How nodes are reached.")
    oar_ssh_connection_timeout = Key(SOME_SECONDS, 120, "Time limit of an action on a node.", aliases="TIMEOUT_SSH")
    oar_ssh_transport = Key(one_of("auto", "paramiko", "openssh"), "auto", "What speaks ssh on the server.")
    oar_ssh_pool_max = Key(POSITIVE, 512, "Connections to nodes kept by one bipbip.")
    oar_ssh_pool_idle = Key(SECONDS, 600, "An unused connection is closed after this time.")
    taktuk_cmd = unset(SERVER_COMMAND, "Check many nodes with taktuk (PINGCHECKER_TAKTUK_ARG_COMMAND).")
    oar_ssh_authorized_keys_file = Key(TEXT, ".ssh/authorized_keys_jobs", "File of the jobs' keys on nodes.")
    oar_privilege_cmd = Key(
        NODE_COMMAND, "sudo -n", "How the oar account becomes root on a node: sudo, or oardodo's path."
    )

    # health of the nodes
    finaud_frequency = Key(SECONDS, 300, "Time between two checks whether nodes answer; 0 = never.")
    check_nodes_with_running_job = Key(BOOLEAN, False, "Check nodes with running jobs, too.")
    disable_suspected_nodes_repair = Key(BOOLEAN, False, "Suspected nodes that answer again stay suspected.")
    activate_pingchecker_at_job_end = Key(BOOLEAN, False, "Check the nodes of each job when it ends.")
    dead_switch_time = Key(SECONDS, 0, "A Suspected node is Dead after this time; 0 = never. Absent stays Absent.")
    pingchecker_taktuk_arg_command = unset(TEXT, "Check nodes with taktuk: its arguments.")
    pingchecker_sentinelle_script_command = unset(
        SERVER_COMMAND, "Check nodes with sentinelle.", aliases="SENTINELLE_SCRIPT_COMMAND SENTINELLE_COMMAND"
    )
    pingchecker_fping_command = unset(SERVER_COMMAND, "Check nodes with fping.", aliases="FPING_COMMAND")
    pingchecker_nmap_command = unset(SERVER_COMMAND, "Check nodes with nmap.", aliases="NMAP_COMMAND")
    pingchecker_generic_command = unset(
        SERVER_COMMAND, "Check nodes with a program that writes the bad ones on stderr.", aliases="GENERIC_COMMAND"
    )
    suspected_healing_exec_file = unset(
        SERVER_COMMAND, "Run on the server when nodes become suspected.", aliases="HEALING_EXEC_FILE"
    )
    suspected_healing_timeout = Key(SOME_SECONDS, 10, "Its time limit.", aliases="HEALING_TIMEOUT")

    # suspending jobs
    suspend_resume_file = unset(
        SITE_PROGRAM,
        "Program that freezes and thaws jobs on nodes, relative to OARDIR; built in if not set.",
        aliases="SUSPEND_RESUME_FILE_MANAGER",
    )
    just_after_suspend_exec_file = unset(SERVER_COMMAND, "Run on the server when a job has been suspended: job id.")
    just_before_resume_exec_file = unset(SERVER_COMMAND, "Run on the server before a job resumes: job id.")
    suspend_resume_script_timeout = Key(SOME_SECONDS, 60, "Time limit of each of them.")

    # job resource manager
    job_resource_manager_property_db_field = unset(
        TEXT,
        "Property with the processors of a resource; not set = jobs are not confined to theirs.",
        aliases="CPUSET_RESOURCE_PROPERTY_DB_FIELD",
        shipped="cpuset",
    )
    job_resource_manager_file = unset(
        SITE_PROGRAM,
        "Program that confines jobs on nodes, relative to OARDIR; built in if not set.",
        aliases="CPUSET_FILE",
    )
    cpuset_path = Key(or_empty(NODE_PATH), "/oar", "Cgroup of all jobs on nodes; empty = keys and files only.")
    compute_thread_siblings = Key(BOOLEAN, False, "A job gets the threads that share a core with its processors.")
    get_current_cpuset_cmd = unset(NODE_COMMAND, "How oarsh finds the job it was called from.")
    cgroup_manager = Key(CGROUP_MANAGER, "auto", "How cgroups are managed on nodes.")
    jrm_memory = Key(BOOLEAN, False, "Limit the memory of jobs.")
    jrm_processes = Key(
        INTEGER, 4096, "Processes and threads that a job may have on a node for each of its processors; 0 = no limit."
    )
    jrm_devices = Key(BOOLEAN, False, "Hide GPUs that are not the job's.")
    jrm_mem_nodes = Key(one_of("cpu", "all"), "cpu", "Memory of the job's own processors, or of the whole node.")
    jrm_clear_dirs = Key(
        WORDS,
        ("/tmp", "/dev/shm", "/var/tmp"),
        "Directories from which a user's files are deleted after the user's last job on a node; empty = off.",
    )
    jrm_max_uptime = Key(SECONDS, 0, "Reboot a node after its last job if it has been up for this time; 0 = never.")

    # oarsh
    oarsh_oarstat_cmd = unset(FRONTEND_PROGRAM, "oarstat on a frontend: allows OAR_JOB_ID=... oarsh there.")
    openssh_optstr = Key(
        TEXT, "1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:PQ:R:S:TVw:W:XYy", "Options of the installed ssh."
    )
    openssh_optstr_filtered = Key(TEXT, "1246b:c:fm:nqstvxBCNPQ:TVXYy", "Options of ssh that oarsh accepts.")
    oarsh_openssh_default_options = Key(
        TEXT,
        "-e none -oProxyCommand=none -oPermitLocalCommand=no -oUserKnownHostsFile=~oar/.ssh/known_hosts"
        " -oKexAlgorithms=curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,"
        "diffie-hellman-group14-sha256",
        "Options that oarsh and interactive sessions give to ssh. These key exchanges cost 60 ms less than the newest.",
    )
    oarsh_bypass_whole_security = Key(BOOLEAN, False, "oarsh acts as plain ssh: jobs are not kept apart.")

    # scheduling
    scheduler_min_time_between_2_calls = Key(
        SECONDS, 0, "Time between two scheduling passes; 0 = as long as the last one took, at most 5 s."
    )
    scheduler_timeout = Key(
        SOME_SECONDS, 10, "Time limit of a plan, of external schedulers, and of token, sleep and wake-up commands."
    )
    scheduler_urgent_time = Key(
        FLOAT,
        0.3,
        "CPU time after which a scheduling pass starts the jobs that can start now and completes its plan later; 0 = it"
        " always plans all jobs.",
    )
    scheduler_launcher_optimization = Key(BOOLEAN, True, "Start jobs of external schedulers during the pass.")
    scheduler_job_security_time = Key(SOME_SECONDS, 1, "Gap between two jobs on a resource.")
    scheduler_besteffort_duration = Key(SECONDS, 300, "Minimum length of a gap for a besteffort job; 0 = its walltime.")
    external_scheduler_max_failures = Key(
        POSITIVE, 3, "Failures in a row before the queue of an external scheduler is stopped."
    )
    scheduler_besteffort_kill_duration_before_reservation = Key(
        SECONDS, 0, "Besteffort jobs are killed this time before a reservation begins."
    )
    scheduler_gantt_hole_minimum_time = Key(
        SECONDS, 0, "Minimum length of a hole in the plan that is filled with jobs."
    )
    scheduler_resource_order = Key(
        TEXT,
        "scheduler_priority ASC, state_num ASC, available_upto DESC, suspended_jobs ASC, "
        "network_address ASC, resource_id ASC",
        "Order in which resources are taken; with deploy ASC first, nodes that no deploy job wants are taken first.",
        shipped="deploy ASC, scheduler_priority ASC, state_num ASC, available_upto DESC, suspended_jobs ASC, "
        "network_address ASC, resource_id ASC",
    )
    scheduler_resource_order_adv_reservations = Key(
        TEXT, "network_address ASC, resource_id ASC", "Order of the resources for reservations in the future."
    )
    scheduler_resource_order_adv_reservations_threshold = Key(
        SECONDS, 300, "This order applies to reservations that begin later than this time from now."
    )
    scheduler_priority_hierarchy_order = Key(
        TEXT, "network_address/resource_id", "Hierarchy levels at which resources near used ones become less preferred."
    )
    log_scheduler_priority_changes = Key(BOOLEAN, False, "Write events when these preferences change.")
    scheduler_resources_always_assigned_type = unset(TEXT, "Resource type that is added to every job.")
    scheduler_available_suspended_resource_type = Key(
        WORDS,
        ("default",),
        "Types of resources that other jobs may use while a job is suspended; empty = none. The oar.conf files of"
        " OAR 2 and 3 set default, too.",
    )
    scheduler_log_decisions = Key(BOOLEAN, False, "Keep all plans in the gantt_*_log tables.")
    scheduler_rounds_kept = unset(
        POSITIVE, "Number of the last scheduling passes that are kept as files in OAR_RUN_DIR, for kao plan."
    )
    scheduler_log_job_scheduling_time = Key(BOOLEAN, False, "Log how long the placement of each job took.")
    scheduler_job_scheduling_time_yaml = unset(SERVER_OUTPUT, "File to which these times are written as YAML.")
    reservation_waiting_resources_timeout = Key(
        SECONDS, 300, "Time that a reservation waits for missing nodes before it begins with fewer."
    )
    kill_inner_jobs_with_container = Key(BOOLEAN, True, "Killing a container kills its inner jobs.")
    metascheduler_mode = Key(one_of("internal", "external"), "internal", "Where waiting jobs are planned.")
    schedulers_path = Key(TEXT, "schedulers", "Directory of external schedulers, relative to OARDIR.")
    hierarchy_labels = Key(
        WORDS,
        ("resource_id", "network_address"),
        "Properties that are levels of requests.",
        shipped="resource_id,network_address,cpu,core",
    )
    max_job_per_queues_group_scheduling_round = Key(
        POSITIVE,
        1000,
        "Waiting jobs planned per scheduling pass and group of queues.",
        aliases="MAX_JOB_PER_SCHEDULING_ROUND",
    )
    scheduler_max_jobs_per_user = Key(
        INTEGER,
        1000,
        "Waiting jobs of one user that a scheduling pass plans before those of everybody else; 0 = all.",
    )
    scheduler_backfill_depth = Key(
        per_queue(INTEGER),
        _WHOLE_ZERO,
        "Number of waiting jobs of a queue that get a planned start; 0 = all. Or a table by queue, _ = other queues.",
    )
    estimate_timeout = Key(POSITIVE, 30, "Seconds that oarsub --estimate and oarstat --explain --change may plan.")
    job_priority = Key(
        one_of(*JobPriority, renamed={"fairsharing": JobPriority.FAIRSHARE}), JobPriority.FIFO, "Order of waiting jobs."
    )
    priority_conf_file = Key(SERVER_FILE, "/etc/oar/priority.yaml", "Weights of MULTIFACTOR.")
    custom_job_sorting = Key(TEXT, "", "Plug-in of CUSTOM.")
    custom_job_sorting_config = Key(TEXT, "", "Its configuration.")
    custom_job_sorting_config_file = Key(TEXT.of(Target.SERVER_FILE), "", "Or the file of its configuration.")
    extra_metasched = Key(TEXT, "default", "Plug-in called in each scheduling pass.")
    extra_metasched_config = Key(TEXT, "", "Its configuration.")
    fairsharing_enabled = Key(BOOLEAN, False, "As JOB_PRIORITY=FAIRSHARE.")
    scheduler_fairsharing_max_job_per_user = unset(
        POSITIVE, "Waiting jobs of one user planned per scheduling pass; no limit if not set."
    )
    scheduler_fairsharing_window_size = Key(SOME_SECONDS, 2592000, "Time in the past that counts for fair share.")
    scheduler_fairsharing_project_targets = Key(
        NUMBERS, MappingProxyType({"default": 21.0}), "Target share of the machine by project, in percent."
    )
    scheduler_fairsharing_user_targets = Key(
        NUMBERS, MappingProxyType({"default": 22.0}), "Target share of the machine by user, in percent."
    )
    scheduler_fairsharing_coef_project = Key(FLOAT, 0.0, "Weight of the project's past usage.")
    scheduler_fairsharing_coef_user = Key(FLOAT, 2.0, "Weight of the user's past usage.")
    scheduler_fairsharing_coef_user_ask = Key(FLOAT, 1.0, "Weight of the user's past requests.")
    scheduler_token_scripts = unset(
        SERVER_COMMANDS, "Commands that print how many tokens are free, by name of the token."
    )
    quotas = Key(BOOLEAN, False, "Apply quotas.")
    quotas_conf_file = Key(SERVER_FILE, "/etc/oar/quotas_conf.json", "File of the quotas.")
    quotas_all_nb_resources_mode = Key(
        one_of("default_not_dead", "all"), "default_not_dead", "Which resources ALL means in quotas."
    )
    quotas_window_time_limit = Key(SOME_SECONDS, 5184000, "Time in the future for which quotas are checked.")
    accounting_window = Key(SOME_SECONDS, 86400, "Length of the accounting windows.")
    accounting_all_types = Key(BOOLEAN, False, "Count resources of all types.")
    accounting_subtract_suspended = Key(BOOLEAN, False, "Do not count the time in which a job was suspended.")
    accounting_inner = Key(BOOLEAN, False, "Count inner jobs beside their container.")

    # changes of walltime
    walltime_change_enabled = Key(BOOLEAN, False, "Users may request another walltime for a running job.")
    walltime_max_increase = Key(
        per_queue(FLOAT),
        _ZERO,
        "Maximum increase: seconds, or a fraction of the walltime below 1; -1 = no limit, 0 = administrators only.",
    )
    walltime_min_for_change = Key(
        per_queue(FLOAT), _ZERO, "Minimum walltime of a job that may change it: seconds, or a fraction below 1."
    )
    walltime_change_apply_time = Key(
        per_queue(FLOAT),
        _ZERO,
        "Time before the end of the job at which a change is granted: seconds, or a fraction of the walltime below"
        " 1; 0 = at once.",
    )
    walltime_increment = Key(
        per_queue(FLOAT),
        _ZERO,
        "Step in which a change is granted: seconds, or a fraction of the walltime below 1; 0 = as a whole.",
    )
    walltime_reduction_disallowed = Key(per_queue(BOOLEAN), _NO, "A walltime cannot be made shorter.")
    walltime_allowed_users_to_force = Key(
        per_queue(WORDS), _NOBODY, "Users who may get their whole change at once; * = all."
    )
    walltime_allowed_users_to_delay_jobs = Key(
        per_queue(WORDS), _NOBODY, "Users whose change may delay waiting jobs; * = all."
    )
    walltime_change_timeout = Key(
        per_queue(SECONDS), _WHOLE_ZERO, "Time after which a change that was not granted is dropped; 0 = never."
    )

    # energy
    scheduler_node_manager_idle_time = unset(
        SECONDS, "Time that a node must be idle before it is halted; required for halts (600)."
    )
    scheduler_node_manager_sleep_time = unset(
        SECONDS, "Minimum time until the next planned job of a node that is halted; required for halts (600)."
    )
    scheduler_node_manager_wakeup_time = Key(SECONDS, 600, "Time that a node needs to boot.")
    scheduler_node_manager_sleep_cmd = unset(SERVER_COMMAND, "Halts the nodes given as arguments and on stdin.")
    scheduler_node_manager_wake_up_cmd = unset(SERVER_COMMAND, "Wakes the nodes given as arguments and on stdin.")
    energy_saving_internal = Key(BOOLEAN, False, "Let Greta halt and wake nodes; the two commands above are ignored.")
    energy_saving_mode = Key(TEXT, "metascheduler_decision_making", "Rounds choose nodes; else a program of the site.")
    energy_saving_node_manager_sleep_cmd = unset(SERVER_COMMAND, "Halts the nodes given on stdin.")
    energy_saving_node_manager_wake_up_cmd = unset(SERVER_COMMAND, "Wakes the nodes given on stdin.")
    energy_saving_node_manager_wakeup_timeout = Key(
        BOOT_LIMITS, ((1, 900),), "Time within which a woken node must answer, by the number of nodes that boot."
    )
    energy_saving_nodes_keepalive = Key(
        KEPT_GROUPS, (("type='default'", 0),), "Number of idle nodes of each kind that are kept awake."
    )
    energy_saving_window_size = Key(POSITIVE, 25, "Commands in a window.", aliases="ENERGY_SAVING_WINDOW_FORKER_SIZE")
    energy_saving_window_time = Key(SECONDS, 60, "Time between two windows of commands.")
    energy_saving_window_timeout = Key(
        SOME_SECONDS, 120, "Time limit of a command; longer than the time between two windows."
    )
    energy_saving_window_forker_bypass = Key(BOOLEAN, False, "Give all nodes to one command.")

    # API, web pages
    api_root_path = Key(ADDRESS_PATH, "", "Path under which a web server offers the API and the pages, such as /oar.")
    api_absolute_uris = Key(BOOLEAN, True, "Links for older clients begin with /, else they are relative.")
    api_default_data_structure = Key(
        one_of("simple", "oar"),
        "simple",
        "Structure of lists in the legacy API. simple: a JSON array; oar: a JSON object with the ids as keys.",
    )
    api_default_max_items_number = Key(POSITIVE, 500, "Default number of items in a page.")
    api_max_limit = Key(POSITIVE, 10000, "Maximum number of items in a page.")
    api_max_body = Key(POSITIVE, 16777216, "Maximum size of a request in bytes.")
    api_max_upload = Key(POSITIVE, 1073741824, "Maximum size of an uploaded file in bytes.")
    api_jobs_uri_default_params = Key(
        TEXT,
        "state=Finishing,Running,Resuming,Suspended,Launching,toLaunch,toError,Waiting,toAckReservation,Hold",
        "Default filter of the list of jobs in the legacy API.",
    )
    api_listen = Key(
        WORDS, ("127.0.0.1:6668", "unix:/run/oar/api.sock"), "Where the API listens: HOST:PORT, unix:PATH."
    )
    api_threads = Key(POSITIVE, 16, "Requests that are answered at the same time.")
    api_max_streams = Key(POSITIVE, 500, "Maximum number of clients of event streams.")
    api_stream_depth = Key(
        POSITIVE,
        10_000,
        "Rows of the history that a stream sends again to a client that reconnects; a client that missed more loads"
        " everything again.",
    )
    api_rate_read = Key(INTEGER, 50, "Reads a second of one client, four times as many at once; 0 = no limit.")
    api_rate_readers = Key(
        INTEGER, 500, "Reads a second of one machine in API_READERS, four times as many at once; 0 = no limit."
    )
    api_rate_change = Key(INTEGER, 10, "Changes a second of one client, ten times as many at once; 0 = no limit.")
    api_rate_estimate = Key(INTEGER, 1, "Estimates a second of one client, ten times as many at once; 0 = no limit.")
    api_timeout = Key(at_least(1, "seconds"), 60, "Time limit of a request.")
    api_statement_timeout = Key(POSITIVE, 10, "Time limit in seconds of one database statement of a request.")
    api_session_hours = Key(POSITIVE, 12, "Validity of a session of the pages in hours; renewed while it is used.")
    api_token_days = Key(POSITIVE, 365, "Maximum validity of a token in days.")
    api_submission_workers = Key(POSITIVE, 2, "Processes that run submissions.")
    api_output = Key(BOOLEAN, True, "Serve the output of jobs to their owners.")
    api_max_follows = Key(POSITIVE, 50, "Maximum number of job outputs that clients follow at the same time.")
    api_idempotency_hours = Key(POSITIVE, 48, "Hours for which a request with an idempotency key may be repeated.")
    api_cors_origins = Key(WORDS, (), "Other origins whose pages may use the API.")
    api_anonymous_read = Key(BOOLEAN, True, "Clients without login may read.")
    api_accounting_private = Key(BOOLEAN, False, "Users see their own accounting only.")
    api_basic_auth = Key(one_of("no", "htpasswd", "pam"), "no", "Names and passwords.")
    htpasswd_file = Key(SERVER_FILE, "/etc/oar/api-users", "File of htpasswd.")
    api_trust_ident = Key(BOOLEAN, True, "Believe the identity header of trusted proxies.")
    api_trusted_proxies = Key(
        PROXIES, (), "Proxies whose X-Remote-Ident and X-Forwarded-For are believed: networks, unix:LOGIN."
    )
    api_readers = Key(NETWORKS, (), "Addresses of programs that read what any user may without naming a user: CiGri.")
    api_admin_by_proxy = Key(BOOLEAN, False, "Accept from these proxies that a user is an administrator, too.")
    api_secret_key = unset(TEXT, "Key of the signed tokens; not set = none.", secret=True)
    api_secret_algorithm = Key(TEXT, "HS256", "Their algorithm.")
    api_access_token_expire_minutes = Key(at_least(1, "minutes"), 524160, "Their validity.")
    api_revoked_tokens = unset(SERVER_FILE, "File of the revoked ones.")
    api_user_regex = Key(PATTERNS, (r"^[a-z_][a-z0-9_.-]{0,31}$",), "What a user's name looks like.")
    api_admin_group = unset(TEXT, "Unix group whose members are administrators of the API.")
    api_admission_rules = Key(BOOLEAN, False, "Serve the admission rules.")
    api_select_all = Key(BOOLEAN, False, "Answer /select_all: SQL of administrators, read-only.")
    api_media = Key(BOOLEAN, False, "Serve users' files to themselves (/media of older clients).")
    api_media_roots = Key(WORDS, ("~",), "Directories of these files; ~ is the user's home.")
    api_metrics_networks = Key(NETWORKS, ("127.0.0.1/32", "::1/128"), "Addresses of clients that may read /metrics.")
    api_metrics_labels = Key(
        some_of("user", "project"),
        (),
        "Labels by which metrics of jobs and resources are divided, also in METRICS_FILE.",
    )
    api_metrics_values = Key(
        POSITIVE, 50, "Maximum number of users or projects with metrics of their own; all others are counted as other."
    )
    api_oar2_unescape = Key(BOOLEAN, True, "Undo the escapes of OAR 2's clients.")
    web_gantt_cache = Key(POSITIVE, 1073741824, "Bytes of files in which days of the Gantt diagram are kept.")
    web_conf_file = Key(SERVER_FILE, "/etc/oar/web.yaml", "Templates of submissions for the web pages.")
    api_stress_factor_script = Key(SERVER_FILE, "/etc/oar/stress_factor.sh", "Prints the stress of the site.")

    # oar_phoenix
    phoenix_logdir = Key(PATH, "/var/lib/oar/phoenix", "Directory of its log.")
    phoenix_soft_rebootcmd = unset(SERVER_COMMAND, "Command for a soft reboot of {NODENAME}; not set = none.")
    phoenix_hard_rebootcmd = unset(SERVER_COMMAND, "Command for a hard reboot of {NODENAME}; not set = none.")
    phoenix_soft_timeout = Key(SOME_SECONDS, 300, "Time within which a node must answer after a soft reboot.")
    phoenix_hard_timeout = Key(SOME_SECONDS, 300, "Time within which a node must answer after a hard reboot.")
    phoenix_cmd_timeout = Key(SOME_SECONDS, 60, "Time limit of a command.")
    phoenix_max_reboots = Key(INTEGER, 20, "Maximum number of nodes that one run of oar-phoenix reboots.")
    phoenix_broken_nodes = Key(TEXT, "state='Suspected'", "SQL condition on resources: the nodes to reboot.")

    # advance reservations
    max_advance_reservations = Key(
        INTEGER, 0, "Maximum number of advance reservations that have not ended; 0 = no limit."
    )
    reservation_duration_offset = Key(
        at_least(-1, "seconds"),
        -1,
        "Time before the end of an advance reservation at which its jobs must have ended; -1 = JOB_KILL_GRACE plus"
        " SCHEDULER_JOB_SECURITY_TIME, so that a job killed at that time is gone at the end.",
    )
    reservation_open = Key(BOOLEAN, False, "Everybody may create advance reservations, not only the userset arusers.")
    reservation_precedence = Key(
        one_of("reservations", "jobs"),
        "reservations",
        "Which are planned first: new advance reservations, or the waiting jobs of their queue.",
    )
    reservation_answer_timeout = Key(SOME_SECONDS, 60, "Time that qrsub waits for the decision of the scheduler.")
    reservation_replace_lost = Key(BOOLEAN, True, "Lost resources of an advance reservation are replaced.")
    reservation_replace_after = Key(
        SECONDS, 300, "Seconds after which they are replaced; at most 60 once the reservation has begun."
    )
    reservation_accounting = Key(
        one_of("owner", "users"), "owner", "Who is counted for an advance reservation: its owner, or its users."
    )
    reservation_series_depth = Key(
        POSITIVE, 4, "Default of qrsub -depth: number of reservations of a series that are requested in advance."
    )
    reservation_acl_checked_users = Key(
        INTEGER, 50, "Maximum number of users of an access list for whom the admission rules are run."
    )
    reservation_environments_file = Key(
        SERVER_FILE, "/etc/oar/reservations.yaml", "Parallel environments, groups of hosts and other names for qrsub."
    )
    reservation_event_exec_file = unset(
        SERVER_COMMAND, "Run on the server when something happens to an advance reservation: number, event, state."
    )
    reservation_request_file = Key(
        SERVER_FILE, "/etc/oar/ar_request", "Options with which each request of qrsub begins."
    )

    # retention and archive
    retention_jobs = Key(DAYS, 0, "Days after which oar-database --purge removes ended, accounted jobs; 0 = never.")
    retention_job_state_logs = Key(DAYS, 0, "The same of the states of ended jobs.")
    retention_event_logs = Key(DAYS, 0, "The same of events, but for those of live jobs.")
    retention_resource_logs = Key(DAYS, 0, "The same of former states of resources.")
    retention_gantt_log = Key(DAYS, 7, "The same of former plans (SCHEDULER_LOG_DECISIONS).")
    retention_challenges = Key(DAYS, 30, "The same of the key pairs of ended jobs.")
    retention_accounting = Key(DAYS, 0, "The same of what oaraccounting has counted.")
    retention_audit = Key(DAYS, 0, "The same of the audit log (oar-audit).")
    retention_reservations = Key(
        DAYS,
        0,
        "Days after which oar-database --purge removes ended advance reservations; 0 = never.",
        aliases="RETENTION_RESERVATION_LOGS RETENTION_RESERVATION_USAGE",
    )
    db_archive_hostname = unset(DATABASE_HOSTS, "Host of the archive; that of the database if not set.")
    db_archive_base_name = unset(
        TEXT, "Database to which ended jobs are copied before they are purged; not set = none."
    )
    db_archive_base_login = unset(TEXT, "Its account; that of the database if not set.")
    db_archive_base_passwd = unset(TEXT, "Its password; that of the database if not set.", secret=True)

    # constants
    sqlalchemy_pool_size = unset(POSITIVE, "API_THREADS says how many requests are answered at a time.", fixed=True)
    sqlalchemy_max_overflow = unset(INTEGER, "API_THREADS says how many requests are answered at a time.", fixed=True)
    sqlalchemy_pool_timeout = unset(
        SOME_SECONDS, "MAX_DB_CONNECTION_TIMEOUT says how long a connection is waited for.", fixed=True
    )
    sqlalchemy_pool_recycle = unset(at_least(-1, "seconds"), "Connections that are broken are renewed.", fixed=True)
    sqlalchemy_echo = unset(BOOLEAN, "PostgreSQL's log_statement logs statements.", fixed=True)
    scheduler_nb_processes = Key(POSITIVE, 1, "A scheduling pass is one process.", fixed=True)
    api_url = Key(TEXT, "", "The pages speak to the address that they come from.", fixed=True)
    oarstat_default_field = Key(
        ITEMS,
        (
            "job_id:Job id",
            "job_name:Job name",
            "Duration",
            "state:State",
            "job_user:User",
            "message:System message",
            "queue_name:Queue",
        ),
        "Each layout of oarstat has its columns; --json has all fields.",
        fixed=True,
    )
    proxy = Key(one_of("no", "traefik"), "no", _JOB_PAGES, fixed=True)
    proxy_traefik_entrypoint = Key(TEXT, "http://localhost:5000", _JOB_PAGES, fixed=True)
    proxy_traefik_rules_file = Key(PATH, "/etc/oar/rules_oar_traefik_proxy.toml", _JOB_PAGES, fixed=True)
    oar_proxy_base_url = Key(TEXT, "/proxy", _JOB_PAGES, fixed=True)
    inserts_from_file = unset(TEXT, "Rows are always written in batches.", fixed=True)
    storable_recursion_limit = unset(TEXT, "Nothing is stored by Perl.", fixed=True)
    metascheduler_oar3_with_oar2 = Key(
        BOOLEAN, False, "Orders of external meta-schedulers come by BIPBIP_COMMANDER_PORT.", fixed=True
    )
    kamelot_get_resources_hierarchy_mode = Key(TEXT, "default", "There is one way to build the hierarchy.", fixed=True)
    quotas_period = Key(
        SOME_SECONDS, 1296000, "Quotas of calendars are looked at as far as QUOTAS_WINDOW_TIME_LIMIT says.", fixed=True
    )
    energy_max_cycles_until_refresh = Key(POSITIVE, 5000, "Nothing is kept in memory that grows.", fixed=True)
    api_resources_list_generation_cmd = unset(TEXT, "Resources are made by oar_resources_add.", fixed=True)
    api_html_header = unset(TEXT, "The pages have templates of their own.", fixed=True)
    api_html_form = unset(TEXT, "The pages have templates of their own.", fixed=True)
    api_colmet_extract_path = unset(TEXT, "What jobs used is in the database: oarstat --usage.", fixed=True)
    api_colmet_hdf5_path_prefix = unset(TEXT, "What jobs used is in the database: oarstat --usage.", fixed=True)
    archive_log_file = unset(PATH, "oar-database prints what it did.", fixed=True)
    archive_log_level = unset(TEXT, "oar-database prints what it did.", fixed=True)
    hash_tables_to_archive = unset(TEXT, "The archive has all tables of jobs.", fixed=True)
    oarmonitor_sensor_file = unset(TEXT, "oarmonitor is gone.", aliases="MONITOR_FILE_SENSOR", fixed=True)
    oarsub_node_exec_file = unset(TEXT, "PROLOGUE_EXEC_FILE runs on the first node.", fixed=True)
    job_resource_manager_job_uid_type = unset(TEXT, "Jobs run under the account of their user.", fixed=True)
    oaradmin_versioning = unset(TEXT, "oar-conf --history and oaradmissionrules --history show changes.", fixed=True)
    oarexec_pid_file_name = Key(TEXT, "pid_of_oarexec_for_jobId_", "A constant.", fixed=True)
    oarsub_file_name_prefix = Key(TEXT, "oarsub_connections_", "A constant.", fixed=True)
    ssh_rendez_vous = Key(TEXT, "oarexec is initialized and ready to do the job", "A constant.", fixed=True)
    bipbip_oarexec_hashtable_send_timeout = Key(ANY_INTEGER, 30, "A constant.", fixed=True)
    phoenix_status_file = Key(
        PATH,
        "/var/lib/oar/phoenix/oar_phoenix.state",
        "The steps of oar_phoenix are in the database.",
        aliases="PHOENIX_DBFILE",
        fixed=True,
    )
    notify_tcp_socket_enabled = Key(TEXT, "1", "A constant.", fixed=True)
    fifo_greta = unset(TEXT, "A constant.", fixed=True)
    batsched_endpoint = unset(TEXT, "A constant.", fixed=True)
    wload_batsim = unset(TEXT, "A constant.", fixed=True)

    @property
    def server_hostname(self) -> str:
        """The first name of SERVER_HOSTNAME: with one server, its name."""
        return self.server_hostnames[0]

    @property
    def server_places(self) -> str:
        """The addresses of the servers, as in messages."""
        return " or ".join(f"{name}:{self.server_port}" for name in self.server_hostnames)

    @property
    def energy_saving(self) -> bool:
        """Whether nodes are halted and woken, either way."""
        return self.may_wake or self.may_halt

    @property
    def may_wake(self) -> bool:
        """Whether there is a way to wake nodes, and scheduling passes choose them."""
        return self._rounds_decide and self.wake_command is not None

    @property
    def may_halt(self) -> bool:
        """Whether there is a way to halt nodes, and scheduling passes choose them after a given time."""
        is_timed = bool(self.scheduler_node_manager_idle_time and self.scheduler_node_manager_sleep_time)
        return is_timed and self._rounds_decide and self.sleep_command is not None

    @property
    def sleep_command(self) -> str | None:
        """The command that halts nodes, of Greta or of the Runner."""
        if self.energy_saving_internal:
            return self.energy_saving_node_manager_sleep_cmd
        return self.scheduler_node_manager_sleep_cmd

    @property
    def wake_command(self) -> str | None:
        """The command that wakes nodes, of Greta or of the Runner."""
        if self.energy_saving_internal:
            return self.energy_saving_node_manager_wake_up_cmd
        return self.scheduler_node_manager_wake_up_cmd

    @property
    def _rounds_decide(self) -> bool:
        return self.energy_saving_mode.lower() == "metascheduler_decision_making"


#: The options that no program of this version reads, and a later one will.  A test finds them out.
UNREAD: frozenset[str] = frozenset()
