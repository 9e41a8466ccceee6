# Refuse unknown job types
from oar.lib.facts.did_you_mean import did_you_mean

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
    r"app=[a-z][a-z0-9_-]*",
    *config["JOB_TYPES_EXTRA"],
]
DATE = "YYYY-MM-DD hh:mm:ss"
FORMS = {
    "container": "container=NAME",
    "inner": "inner=JOB or inner=NAME",
    "timesharing": "timesharing=user,name with * for any of them",
    "idempotent": "idempotent=TIMES",
    "placeholder": "placeholder=NAME",
    "allowed": "allowed=NAME",
    "token": "token:NAME=NUMBER",
    "nice": "nice=NUMBER",
    "state": "state=permissive",
    "ar": "ar=hard",
    "app": "app=PROGRAM",
    **{name: f"{name}={DATE}" for name in ("postpone", "deadline", "expire")},
}
if user in ("oar", "root"):
    TYPES += ["no_quotas", "idle_ok"]
known = re.compile("|".join(f"(?:{each})" for each in TYPES), re.ASCII)
for each in types:
    if not known.fullmatch(each):
        word, parts = re.split("[=:]", each)[0], each.split(",")
        guess = did_you_mean(word, re.findall(r"[a-z_]{4,}", " ".join(TYPES)), quote="")
        if word in FORMS:
            guess = f"\n# Write {FORMS[word]}"
        elif len(parts) > 1 and all(known.fullmatch(part.strip()) for part in parts):
            guess = "\n# Write " + " ".join(f"-t {part.strip()}" for part in parts)
        reject(f"[ADMISSION RULE] Error: unknown job type: {each}{guess}")
