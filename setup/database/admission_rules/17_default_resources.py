# Ask for resources of type default where a request does not say which type
NAMES_TYPE = re.compile(r"(^|[\s(])type([\s=]|$)", re.IGNORECASE)
modified = False
for groups, _ in resource_request:
    for group in groups:
        condition = group["property"]
        if not NAMES_TYPE.search(condition):
            group["property"] = f"({condition}) AND type = 'default'" if condition else "type = 'default'"
            modified = True
if modified and verbosity:
    print("[ADMISSION RULE] Modify resource description with type constraints")
