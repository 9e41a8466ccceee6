# Refuse reservations that are besteffort
if "besteffort" in types and reservation_date:
    reject("[ADMISSION RULE] Error: a job cannot both be of type besteffort and be a reservation.")
