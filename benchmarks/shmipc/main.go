package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	shmipc "github.com/cloudwego/shmipc-go"

	"github.com/ntbnet/ntbnet/internal/perf/bench"
)

// levelNoPrint is the library's level that logs nothing. The library does not
// export it.
const levelNoPrint = 5

func main() {
	shmipc.SetLogLevel(levelNoPrint)
	// The terminal sends its signals to all processes. The process that started
	// this one ends it by closing its standard input.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "serve":
		err = serve(os.Args[2], os.Args[3], os.Stdout, os.Stdin)
	case len(os.Args) == 1:
		err = work(os.Stdin, os.Stdout)
	default:
		err = errors.New("it takes no argument: sdp-perf bench starts it")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "shmipc: "+err.Error())
		os.Exit(1)
	}
}

// work starts a server for each API and measures what its input asks for.
func work(in io.Reader, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "shmipc-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var transports []bench.Transport
	for _, api := range []string{streamAPI, bufferAPI} {
		t := &transport{api: api, path: filepath.Join(dir, api)}
		stop, startErr := startServer(t)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, stop()) }()
		transports = append(transports, t)
	}
	return bench.ServeWorker(context.Background(), in, out, transports)
}

// startServer starts this program as the second process of t.
func startServer(t *transport) (stop func() error, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "serve", t.path, t.api)
	cmd.Stderr = os.Stderr
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		stdin.Close()
		return cmd.Wait()
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return nil, errors.Join(errors.New("the server did not start"), stop())
	}
	return stop, nil
}
