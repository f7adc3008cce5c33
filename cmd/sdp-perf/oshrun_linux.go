package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel end a program when this process dies. It is for
// programs that do not read their standard input. For the kernel, the parent is the
// thread that starts the program. Go ends only threads whose goroutine ends while
// it is locked to one, and no goroutine here does that.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
