//! What servers report, in OpenMetrics.
