"""The assignments of the files ``oar.conf`` that OAR 2.4, 2.5 and 3 deliver, as their programs read them."""

#: What all three set alike.
_COMMON = """
DB_BASE_NAME="oar"
DB_BASE_LOGIN="oar"
SERVER_PORT="6666"
OARSUB_DEFAULT_RESOURCES="/resource_id=1"
OARSUB_NODES_RESOURCES="network_address"
OARSUB_FORCE_JOB_KEY="no"
LOG_LEVEL="2"
LOG_CATEGORIES="all"
OAREXEC_DEBUG_MODE="0"
LOG_FILE="/var/log/oar.log"
DEPLOY_HOSTNAME="127.0.0.1"
COSYSTEM_HOSTNAME="127.0.0.1"
FINAUD_FREQUENCY="300"
SCHEDULER_JOB_SECURITY_TIME="60"
SCHEDULER_GANTT_HOLE_MINIMUM_TIME="300"
SCHEDULER_AVAILABLE_SUSPENDED_RESOURCE_TYPE="default"
ENERGY_SAVING_INTERNAL="no"
JOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD="cpuset"
CPUSET_PATH="/oar"
"""

_ORDER = "scheduler_priority ASC, state_num ASC, available_upto DESC, suspended_jobs ASC, network_address ASC"
_OPTIONS = "-oProxyCommand=none -oPermitLocalCommand=no"

#: OAR 2.4 on PostgreSQL, with the lines that its administrators take the comment sign from.
OAR_2_4 = f"""{_COMMON}
DB_TYPE="Pg"
DB_PORT="5432"
DETACH_JOB_FROM_SERVER="0"
TAKTUK_CMD="/usr/bin/taktuk -t 30 -s"
PINGCHECKER_TAKTUK_ARG_COMMAND="broadcast exec timeout 5 kill 9 [ true ]"
HEALING_EXEC_FILE="/bin/true"
HEALING_TIMEOUT="10"
SCHEDULER_TIMEOUT="10"
SCHEDULER_NB_PROCESSES=4
SCHEDULER_RESOURCE_ORDER="scheduler_priority ASC, suspended_jobs ASC, network_address DESC, resource_id ASC"
SCHEDULER_PRIORITY_HIERARCHY_ORDER="network_address/resource_id"
ENERGY_SAVING_NODES_KEEPALIVE="10"
SUSPEND_RESUME_FILE="/etc/oar/suspend_resume_manager.pl"
JOB_RESOURCE_MANAGER_FILE="/etc/oar/job_resource_manager.pl"
JOB_RESOURCE_MANAGER_JOB_UID_TYPE="userid"
OARSH_OPENSSH_DEFAULT_OPTIONS="{_OPTIONS}"
OARADMIN_VERSIONING="yes"
STAGEOUT_DIR="/var/lib/oar/stageouts/"
"""

#: OAR 2.5, as it is delivered.
OAR_2_5 = f"""{_COMMON}
DB_TYPE="Pg"
DB_PORT="5432"
DB_BASE_LOGIN_RO="oar_ro"
OAR_RUNTIME_DIRECTORY="/var/lib/oar"
DETACH_JOB_FROM_SERVER="1"
OPENSSH_CMD="/usr/bin/ssh -p 6667 -e none"
PINGCHECKER_SENTINELLE_SCRIPT_COMMAND="/usr/lib/oar/sentinelle.pl -t 30 -w 20"
SCHEDULER_TIMEOUT="30"
SCHEDULER_NB_PROCESSES=1
SCHEDULER_RESOURCE_ORDER="{_ORDER}"
SCHEDULER_RESOURCE_ORDER_ADV_RESERVATIONS="network_address ASC, resource_id ASC"
SCHEDULER_PRIORITY_HIERARCHY_ORDER="network_address/resource_id"
SCHEDULER_FAIRSHARING_MAX_JOB_PER_USER=30
META_SCHED_CMD="oar_meta_sched"
JOB_RESOURCE_MANAGER_FILE="/etc/oar/job_resource_manager_cgroups.pl"
OARSH_OARSTAT_CMD="/usr/bin/oarstat"
OPENSSH_OPTSTR="1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:PQ:R:S:TVw:W:XYy"
OPENSSH_OPTSTR_FILTERED="1246b:c:fm:nqstvxBCNPQ:TVXYy"
OARSH_OPENSSH_DEFAULT_OPTIONS="-e none {_OPTIONS} -oUserKnownHostsFile=/var/lib/oar/.ssh/known_hosts"
OARSTAT_DEFAULT_OUTPUT_FORMAT=2
"""

#: OAR 3, as it is delivered, with its newest job resource manager.
OAR_3 = f"""{_COMMON}
DB_PORT="5432"
DB_BASE_LOGIN_RO="oar_ro"
OAR_RUNTIME_DIRECTORY="/var/lib/oar"
DETACH_JOB_FROM_SERVER="1"
OPENSSH_CMD="/usr/bin/ssh -p 6667"
META_SCHED_CMD="kao"
PINGCHECKER_SENTINELLE_SCRIPT_COMMAND="/usr/local/lib/oar/sentinelle.pl -t 30 -w 20"
SCHEDULER_TIMEOUT="30"
SCHEDULER_RESOURCE_ORDER="{_ORDER}"
SCHEDULER_PRIORITY_HIERARCHY_ORDER="resource_id"
HIERARCHY_LABELS="resource_id,network_address,cpu,core"
SCHEDULER_FAIRSHARING_MAX_JOB_PER_USER=30
SUSPEND_RESUME_FILE="/etc/oar/suspend_resume_manager_systemd.pl"
JOB_RESOURCE_MANAGER_FILE="/etc/oar/job_resource_manager_systemd.pl"
OARSH_OARSTAT_CMD="/usr/local/bin/oarstat"
OARSTAT_DEFAULT_OUTPUT_FORMAT=2
API_SECRET_KEY="3f22a0a65212bfb6cdf0dc4b39be189b3c89c6c2c8ed0d1655e0df837145208b"
API_SECRET_ALGORITHM="HS256"
API_ACCESS_TOKEN_EXPIRE_MINUTES="524160" # One year
ADMISSION_RULES_IN_FILES="yes"
"""
