//go:build linux && (amd64 || arm64) && !race

package litmus

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/ntb/ntbshm"
	"golang.org/x/sys/unix"
)

// peerVariable makes the test binary the second process of a test.
const peerVariable = "LITMUS_PEER"

func TestMain(m *testing.M) {
	if os.Getenv(peerVariable) != "" {
		if err := play(); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var options = ntbshm.Options{Window: windowBytes}

// play is the second process. It plays side 1 of the test that each line of its
// input names, until the input ends.
func play() error {
	f := os.NewFile(3, "cable")
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	f.Close()
	dev, err := ntbshm.New(c.(*net.UnixConn), options)
	if err != nil {
		return err
	}
	defer dev.Close()
	s := newSide(dev, 1)
	thread, err := newProcessor(1)
	if err != nil {
		return err
	}
	for {
		var index, out int
		var first uint64
		if _, err := fmt.Scanln(&index, &out, &first); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		err := thread.run(func() error {
			_, err := s.run(&litmuses[index], out, first, limits{})
			return err
		})
		if err != nil {
			return err
		}
		fmt.Println("ended")
	}
}

// arena is where litmus tests are played.
type arena interface {
	// play plays one half of litmus number index.
	play(index, out int, l limits) (outcome, error)
}

// processes is an arena of this process and a second one.
type processes struct {
	*processor
	side *side
	next uint64 // round
	say  io.Writer
	hear *bufio.Scanner
}

func newProcesses(t *testing.T) *processes {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "cable"), os.NewFile(uintptr(fds[1]), "cable")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	t.Cleanup(func() { c.Close() })
	cmd.Env = append(os.Environ(), peerVariable+"=1")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if t.Failed() {
			_ = cmd.Process.Kill()
		}
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("the second process did not end well: %v", err)
		}
	})
	dev, err := ntbshm.New(c.(*net.UnixConn), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return &processes{processor: bound(t, 0), side: newSide(dev, 0), next: 1, say: in, hear: bufio.NewScanner(out)}
}

func (p *processes) play(index, out int, l limits) (o outcome, err error) {
	if _, err := fmt.Fprintln(p.say, index, out, p.next); err != nil {
		return o, err
	}
	err = p.run(func() error {
		o, err = p.side.run(&litmuses[index], out, p.next, l)
		return err
	})
	if err != nil {
		return o, err
	}
	p.next += o.rounds + 1
	if !p.hear.Scan() {
		return o, fmt.Errorf("the second process has ended: %v", p.hear.Err())
	}
	return o, nil
}

// threads is an arena of two threads of this process.
type threads struct {
	on    [2]*processor
	sides [2]*side
	next  uint64
}

func newThreads(t *testing.T) *threads {
	t.Helper()
	a, b := ntbmem.Pair(windowBytes)
	t.Cleanup(func() { a.Close(); b.Close() })
	p := &threads{on: [2]*processor{bound(t, 0), bound(t, 1)}, next: 1, sides: [2]*side{newSide(a, 0), newSide(b, 1)}}
	bells := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	for i, other := range []ntb.Device{b, a} {
		p.sides[i].peer, p.sides[i].bells = other, bells
	}
	return p
}

func (p *threads) play(index, out int, l limits) (o outcome, err error) {
	p.on[1].start(func() error {
		_, err := p.sides[1].run(&litmuses[index], out, p.next, limits{})
		return err
	})
	err = p.on[0].run(func() error {
		o, err = p.sides[0].run(&litmuses[index], out, p.next, l)
		return err
	})
	if err != nil {
		return o, err // side 1 ends with the device
	}
	err = <-p.on[1].ended
	p.next += o.rounds + 1
	return o, err
}

// exits has threads of this process end, again and again, on the processor of side 0.
func exits(t *testing.T) {
	stop := make(chan bool)
	go func() {
		for {
			if p, err := newProcessor(0); err == nil {
				p.close()
			}
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Microsecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop) })
}

// bound returns a processor that ends with the test.
func bound(t *testing.T, me int) *processor {
	t.Helper()
	p, err := newProcessor(me)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}
