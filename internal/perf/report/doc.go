// Package report prints what package meter measures: as text like iperf3's, as JSON with its keys,
// as a table of transports, and as pictures. It measures nothing.
package report
