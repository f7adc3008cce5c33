package main

import (
	"io"
	"log"
	"os"
	"runtime"

	"github.com/ntbnet/ntbnet/internal/flags"
)

// Exit statuses of shmemrun itself.
const (
	statusOK       = 0
	statusUsage    = 2
	statusTimeout  = 124
	statusCannot   = 126 // the program cannot be run
	statusNotFound = 127
	statusSignal   = 128 // plus the number of the signal
)

func main() {
	runtime.LockOSThread() // see "Processes" in the package comment
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program, and returns its exit status.
func run(args []string, stdout, stderr io.Writer) int {
	logger := log.New(stderr, "shmemrun: ", log.Lmsgprefix)
	o, err := parseOptions(args, stdout)
	if err != nil {
		return flags.Status("shmemrun", err, stderr)
	}
	return runJob(o, logger)
}
