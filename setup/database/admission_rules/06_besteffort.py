# Keep besteffort jobs, their queue and their resources together
if "besteffort" in types and queue != "besteffort":
    queue = "besteffort"
    print("[ADMISSION RULE] Automatically redirect in the besteffort queue")
if queue == "besteffort" and "besteffort" not in types:
    types.append("besteffort")
    print("[ADMISSION RULE] Automatically add the besteffort type")
if "besteffort" in types:
    add_property("besteffort = 'YES'")
    if verbosity:
        print("[ADMISSION RULE] Automatically add the besteffort constraint on the resources")
