package job

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/launch"
	"github.com/ntbnet/ntbnet/internal/onesided"
)

// Options are how Open joins a job.
type Options struct {
	// Given says that this is PE number PE of N of the job named Job. Else the launcher
	// says that, and these three do not count.
	Given bool
	PE, N int
	Job   string

	// The following are options of package shmem. What is zero has their defaults.
	Fabric  string
	Heap    int
	Strict  bool
	Debug   bool
	Timeout time.Duration

	// Exit is called in place of os.Exit, once, where GlobalExit of this PE or another one
	// ends the process. It does not return. A front that sets it ends the process also when
	// the job has failed.
	Exit func(status int)
	// Recheck is how often a wait that sleeps looks again, for programs that store to
	// this PE's heap by themselves. 0: never, since every store of this package wakes it.
	Recheck time.Duration
	// Threads is how waits sleep that threads of C call. They look at their context after each Recheck alone.
	Threads *onesided.Threads
	// CNames has errors name calls as C does: shmem_put, not put.
	CNames bool

	// Static is how many bytes the first object of the heap takes, if a front maps its memory a second time: whole
	// pages. They are in no bridge's window.
	Static int

	// Ctx is where Open makes the default context. If it is nil, Open allocates one.
	Ctx *onesided.Ctx
}

// options are the Options of a World, and what Open adds.
type options struct {
	Options
	inProcess bool // several PEs share this process
	ownFabric bool // no fabric was named
	launcher  *launch.Job
	turn      int64           // how many jobs this process has left in order before, which its launcher started
	common    *heapmem.Common // the memory in which all PEs have their heaps; nil if each heap is a file of its own
}

// Limits of Options.
const (
	MaxPEs  = launch.MaxPEs // most PEs of a job
	MaxHeap = 1 << 40       // largest heap, in bytes

	defaultHeap   = 8 << 30
	defaultGoHeap = 64 << 20 // for PEs within one process

	defaultTimeout = 30 * time.Second
)

// Environment variables of the specification. Each may have the deprecated prefix SMA_ in place
// of SHMEM_.
const (
	envHeap    = "SHMEM_SYMMETRIC_SIZE"
	envDebug   = "SHMEM_DEBUG"
	envVersion = "SHMEM_VERSION"
	envInfo    = "SHMEM_INFO"
)

// variable returns the value of an environment variable, and under which name it is set. One that is
// empty counts as not set.
func variable(name string) (value, as string) {
	as = name
	if os.Getenv(name) == "" {
		as = "SMA_" + strings.TrimPrefix(name, "SHMEM_")
	}
	return os.Getenv(as), as
}

func (o *options) check() error {
	switch {
	case o.N < 1 || o.N > MaxPEs:
		return fmt.Errorf("%d PEs: want 1 to %d", o.N, MaxPEs)
	case o.PE < 0 || o.PE >= o.N:
		return fmt.Errorf("PE %d of %d: want 0 to %d", o.PE, o.N, o.N-1)
	case o.Heap < 1 || o.Heap > MaxHeap:
		return fmt.Errorf("symmetric heap of %d bytes: want 1 to %d", o.Heap, MaxHeap)
	case o.Timeout <= 0:
		return fmt.Errorf("timeout of %v: want more than 0", o.Timeout)
	}
	return nil
}

// environment sets from the environment what no option has set.
func (o *options) environment() (err error) {
	if v, as := variable(envHeap); v != "" && o.Heap == 0 {
		if o.Heap, err = parseSize(v); err != nil {
			return fmt.Errorf("%s=%s: %w", as, v, err)
		}
		o.Heap = max(1, o.Heap)
	}
	if v, _ := variable(envDebug); v != "" {
		o.Debug = true
	}
	return nil
}

// inform prints what environment variables ask for. PE 0 calls it.
func inform(to io.Writer) {
	if v, _ := variable(envVersion); v != "" {
		fmt.Fprintln(to, "OpenSHMEM 1.6, ntbnet "+moduleVersion())
	}
	if v, _ := variable(envInfo); v != "" {
		io.WriteString(to, info)
	}
}

// moduleVersion returns the version of this module that the program was built with.
func moduleVersion() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(build.Deps, &build.Main) {
			if m.Path == "github.com/ntbnet/ntbnet" {
				return m.Version
			}
		}
	}
	return "of an unknown version"
}

const info = `OpenSHMEM reads these environment variables, also with SMA_ in place of SHMEM_:
  SHMEM_SYMMETRIC_SIZE  size of the symmetric heap in bytes, as in 65536, 512m or 1.5g; 8g unless set
  SHMEM_DEBUG           anything: compare what PEs pass to collective calls
  SHMEM_VERSION         anything: PE 0 prints the version at the start
  SHMEM_INFO            anything: PE 0 prints this at the start
`
