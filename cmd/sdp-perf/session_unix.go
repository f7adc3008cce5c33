//go:build unix

package main

import "syscall"

// ownSession has a process begin a session of its own.
var ownSession = &syscall.SysProcAttr{Setsid: true}
