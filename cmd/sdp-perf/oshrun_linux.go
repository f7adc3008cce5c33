package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends a program that does not look at its standard input when this
// one dies. The kernel's parent is the thread that starts it; Go ends only threads
// whose goroutine ends while it is locked to one, and nothing here does that.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
