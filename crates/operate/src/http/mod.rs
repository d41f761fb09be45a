//! HTTP, over TLS where it leaves the machine: the server of pages and metrics, the client of
//! webhooks.
