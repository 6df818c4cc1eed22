//! Base systems: what starts jobs on this machine or on a cluster.
