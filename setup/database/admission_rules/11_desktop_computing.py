# Keep desktop computing jobs and others apart
if "desktop_computing" in types:
    add_property("desktop_computing = 'YES'")
    print("[ADMISSION RULE] Added automatically desktop_computing resource constraints")
else:
    add_property("desktop_computing = 'NO'")
