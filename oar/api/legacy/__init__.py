"""The interfaces of OAR 2.5 and OAR 3 on their own addresses, and old links of their pages."""
