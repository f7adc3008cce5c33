// Package flags parses the flags of the commands, with errors in the words of their users.
package flags
