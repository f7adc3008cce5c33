// Package ntbattach is a bridge for tests whose two ends are attachments within a process.
package ntbattach
