// Package metrics is how a command serves its counters by HTTP, to this machine alone. It has the rule for addresses, and
// writes Prometheus' text format. It counts nothing itself.
package metrics
