# Refuse unknown job types
from oar.lib.guesses import did_you_mean

TYPES = [
    r"container(=\w+)?",
    r"container_users=[\w.-]+(\+[\w.-]+)*",
    r"ar=hard",
    r"deploy(=standby)?",
    r"desktop_computing",
    r"besteffort",
    r"cosystem(=standby)?",
    r"idempotent(=\d{1,6})?",
    r"(set_)?placeholder=\w+",
    r"(allowed|use_placeholder|allow)=\w+",
    r"inner=\w+",
    r"timesharing(=(\*|user),(\*|name|job_name)|=(\*|name|job_name),(\*|user))?",
    r"token:\w+=\d+",
    r"noop(=standby)?",
    r"(postpone|deadline|expire)=\d{4}-\d{1,2}-\d{1,2}(\s+\d{1,2}:\d{1,2}(:\d{1,2})?)?",
    r"state=permissive",
    r"nice=\d+(\.\d+)?",
    r"(find|assign)=\w[\w:.=-]*",
    r"checkpoint",
    r"walltime=best",
    *config["JOB_TYPES_EXTRA"],
]
if user in ("oar", "root"):
    TYPES.append("no_quotas")
for each in types:
    if not re.fullmatch("|".join(f"(?:{known})" for known in TYPES), each, re.ASCII):
        word = re.split("[=:]", each)[0]
        guess = did_you_mean(word, re.findall(r"[a-z_]{4,}", " ".join(TYPES)), quote="")
        if word in ("postpone", "deadline", "expire"):
            guess = f"\n# Write {word}=YYYY-MM-DD hh:mm:ss"
        reject(f"[ADMISSION RULE] Error: unknown job type: {each}{guess}")
