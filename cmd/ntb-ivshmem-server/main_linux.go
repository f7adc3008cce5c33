package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/ivshmem"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

const usageHead = `ntb-ivshmem-server hands out memory to virtual machines and processes of the
host, so that SDP runs between them. It speaks the protocol of QEMU's
ivshmem-server.

Usage: ntb-ivshmem-server [flags] SOCKET ...

Each SOCKET is a path, and has a memory of its own: a bridge between two ends.

A bridge between a virtual machine and this host:
  ntb-ivshmem-server /run/lab.sock
  qemu-system-x86_64 ... -chardev socket,path=/run/lab.sock,id=lab \
    -device ivshmem-doorbell,chardev=lab,vectors=1
On the host, and in the virtual machine (lspci -D shows the address):
  SDP_FABRIC='line:lab?node=1&nodes=2&right=ivshmem:/run/lab.sock' server
  SDP_FABRIC='line:lab?node=2&nodes=2&left=ivshmem:0000:00:03.0' client
The function is bound to vfio-pci there, with an IOMMU. Without one,
ivshmem:0000:00:03.0,poll uses a function that has no driver, and polls.

A machine with an ivshmem-plain, which has no interrupts, beside them:
  truncate -s 64M /dev/shm/lab
  ntb-ivshmem-server --file /dev/shm/lab --peers 6 SOCKET
  qemu-system-x86_64 ... -device ivshmem-plain,memdev=lab \
    -object memory-backend-file,id=lab,share=on,mem-path=/dev/shm/lab,size=64M

Flags:
`

const usageTail = `
Exit status: 0 after SIGTERM or SIGINT; 1 if a listener failed; 2 if it could
not start.
`

// Exit statuses.
const (
	statusOK     = 0
	statusFailed = 1
	statusUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the parsed command line.
type options struct {
	serve ivshmem.Options
	paths []string
	mode  os.FileMode
	group int // -1 for the process' own
	quiet bool
}

func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o := &options{group: -1}
	fs := flags.New("ntb-ivshmem-server", stdout, usageHead, usageTail)
	size := flags.Size(64 << 20)
	fs.Var(&size, "size", "of each memory, a power of two from 1M to 1T, as in 64M or 1G; SDP needs 2M for 2 ends")
	fs.StringVar(&o.serve.File, "file", "", "the memory of the one SOCKET is `FILE`, which has its size")
	fs.IntVar(&o.serve.Peers, "peers", 2, "`N` ends share each memory, 2 to 16; with more than 2 each can read and change all of it")
	fs.IntVar(&o.serve.Vectors, "vectors", 1, "`N` interrupts for each end, 1 to 64; SDP uses one")
	mode := fs.String("mode", "0600", "`MODE` of the sockets, in octal")
	group := fs.String("group", "", "`GROUP` of the sockets, by name or number (default that of this process)")
	fs.BoolVar(&o.quiet, "quiet", false, "do not log who comes and goes")
	if err := flags.Parse(fs, args, stdout); err != nil {
		return nil, err
	}
	o.paths, o.serve.Size = fs.Args(), int64(size)
	if o.serve.File != "" && (len(o.paths) > 1 || fs.Changed("size")) {
		return nil, errors.New("--file is the memory of one SOCKET, and has its size: leave --size and other sockets out")
	}
	if len(o.paths) == 0 {
		return nil, errors.New("nothing to do: give the path of a socket, as in ntb-ivshmem-server /run/lab.sock")
	}
	if !ivshmem.IsSize(o.serve.Size) {
		return nil, fmt.Errorf("--size %v: want a power of two from 1M to 1T, as in 64M", &size)
	}
	if err := o.serve.Check(); err != nil {
		return nil, err
	}
	m, err := strconv.ParseUint(*mode, 8, 32)
	if err != nil || m == 0 || m > 0o777 {
		return nil, fmt.Errorf("--mode %q: want an octal number from 1 to 777, as in 0660", *mode)
	}
	o.mode = os.FileMode(m)
	if *group != "" {
		if o.group, err = groupID(*group); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// groupID returns the number of a group.
func groupID(name string) (int, error) {
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("--group %q: %w", name, err)
	}
	return strconv.Atoi(g.Gid)
}

// run runs the program until ctx ends, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	logger := log.New(stderr, "ntb-ivshmem-server: ", log.Lmsgprefix)
	o, err := parseOptions(args, stdout)
	if err != nil {
		return flags.Status("ntb-ivshmem-server", err, stderr)
	}
	if o.serve.Peers > 2 {
		logger.Printf("WARNING: each of %d peers can read and change all of a memory, also what others send each other", o.serve.Peers)
	}
	var servers []*memory
	defer func() {
		for _, m := range servers {
			m.close()
		}
	}()
	for _, path := range o.paths {
		m, err := newMemory(ctx, path, o, logger)
		if err != nil {
			logger.Print(err)
			return statusUsage
		}
		servers = append(servers, m)
	}
	return serve(ctx, servers, logger)
}

// serve serves until ctx ends or a listener fails.
func serve(ctx context.Context, servers []*memory, logger *log.Logger) int {
	life, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	for _, m := range servers {
		all.Go(func() { fail(fmt.Errorf("%s: %w", m.path, m.server.Serve(m.ln))) })
	}
	<-life.Done()
	for _, m := range servers {
		m.close()
	}
	all.Wait()
	if ctx.Err() == nil {
		logger.Print(context.Cause(life))
		return statusFailed
	}
	return statusOK
}

// memory is one socket and what it serves.
type memory struct {
	path   string
	server *ivshmem.Server
	ln     *unixsock.Listener
}

func newMemory(ctx context.Context, path string, o *options, logger *log.Logger) (*memory, error) {
	options := o.serve
	if !o.quiet {
		options.Log = func(line string) { logger.Printf("%s: %s", path, line) }
	}
	server, err := ivshmem.NewServer(options)
	if err != nil {
		return nil, err
	}
	ln, err := unixsock.ListenAs(ctx, path, unixsock.Rights{Mode: o.mode, UID: -1, GID: o.group})
	if err != nil {
		server.Close()
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	if !o.quiet {
		size := flags.Size(server.Memory())
		logger.Printf("%s: %v for %d ends", path, &size, options.Peers)
	}
	return &memory{path, server, ln}, nil
}

func (m *memory) close() {
	m.server.Close()
	m.ln.Close() // if nobody serves it yet
}
