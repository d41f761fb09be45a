//! Answers to an SNMP agent (pass_persist).
