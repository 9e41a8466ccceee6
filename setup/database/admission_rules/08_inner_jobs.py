# Check the container of inner jobs
ALLOW_AR_INNER = True  # a reservation may be inside a container that is a reservation
CONTAINER_DEFAULT_OPEN = False  # True: anybody may use a container that has no container_users list
for each in types:
    if not re.match(r"inner[=:]", each):
        continue
    container = live_container(each[len("inner=") :])
    if container is None:
        reject("[ADMISSION RULE] Error: inner job is requesting an invalid container id.")
    if reservation_date and not (ALLOW_AR_INNER and container.is_reservation):
        reject(
            "[ADMISSION RULE] Error: an advance-reservation inner job requires the container"
            " to be an advance reservation as well."
        )
    is_open = CONTAINER_DEFAULT_OPEN and not container.users
    if user != container.user and user not in container.users and not is_open:
        reject(f"[ADMISSION RULE] Error: you are not allowed to use the container {container.id}.")
