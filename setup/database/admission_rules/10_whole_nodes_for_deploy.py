# Refuse deploy jobs on parts of nodes
PARTS_OF_NODES = {"cpu", "core", "thread", "gpu", "resource_id"}
if any(re.match(r"deploy(=|$)", each) for each in types):
    for groups, _ in resource_request:
        for group in groups:
            for level in group["resources"]:
                if level["resource"].lower() in PARTS_OF_NODES:
                    reject(f"[ADMISSION RULE] '{level['resource']}' resource is not allowed with a deploy job")
