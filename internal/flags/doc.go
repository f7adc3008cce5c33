// Package flags parses the flags of the commands, with errors in the words of their users, and
// prints their version.
package flags
