// Package suite has tests that are the same over TCP and over SDP, and some that are not.
package suite
