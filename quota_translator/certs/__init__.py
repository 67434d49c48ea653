"""The webhook's certificate: made here and kept in a Secret, or mounted by somebody else."""
