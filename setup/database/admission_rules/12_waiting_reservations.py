# Limit the reservations of a user that have not begun
MOST_WAITING_RESERVATIONS = 2
if reservation_date and not is_advance_reservation:
    unlimited = []
    path = os.path.expanduser("~/unlimited_reservation.users")
    if os.path.exists(path):
        with open(path) as file:
            unlimited = [line.strip() for line in file]
    if user in unlimited:
        if verbosity:
            print(f"[ADMISSION RULE] {user} is granted the privilege to do unlimited reservations")
    elif waiting_reservations(user) >= MOST_WAITING_RESERVATIONS:
        reject(
            "[ADMISSION RULE] Error: you cannot have more than"
            f" {MOST_WAITING_RESERVATIONS} waiting advance reservations."
        )
