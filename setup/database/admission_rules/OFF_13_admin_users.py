# Example: put jobs of users listed in a file in the admin queue
path = "/etc/oar/admin_users.txt"
if os.path.exists(path):
    with open(path) as file:
        if user in [line.strip() for line in file]:
            queue = "admin"
            print("[ADMISSION RULE] Change assigned queue to admin")
