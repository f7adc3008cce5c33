//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// setGroup puts a command into a process group of its own, which is interrupted when its
// context is done. The terminal interrupts this process only.
func setGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}

// killGroup kills what is left of a command's group, which may be nothing.
func killGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
