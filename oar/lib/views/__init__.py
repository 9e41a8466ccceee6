"""What users see of jobs, nodes and consumption: records, from which every format is made."""
