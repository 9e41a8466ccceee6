# Keep desktop computing jobs and others apart
if "desktop_computing" in types:
    add_property("desktop_computing = 'YES'")
    if verbosity:
        print("[ADMISSION RULE] Added automatically desktop_computing resource constraints")
else:
    add_property("desktop_computing = 'NO'")
