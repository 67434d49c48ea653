"""A folder of YAML in place of a cluster: reading, printing, and the same port as the live one."""
