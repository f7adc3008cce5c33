//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
)

// roleVariable makes the test binary the other process of a test.
const roleVariable = "NTBSHM_TEST_PEER"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := echo(); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// echo is the other process. It opens the cable that it was given. It answers each
// doorbell by storing the word that it finds, plus 1, until the link is down.
func echo() error {
	f := os.NewFile(3, "cable")
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	f.Close()
	d, err := New(c.(*net.UnixConn), small)
	if err != nil {
		return err
	}
	d.SetPeerSpad(0, uint32(os.Getpid()))
	out := d.Outbound()
	for d.WaitDoorbell(0) == nil {
		out.Publish64(0, ntb.Load64(d.Inbound(), 0)+1)
		d.RingDoorbell(0)
	}
	return d.Close()
}

// startPeer starts the other process and opens this end.
func startPeer(t testing.TB) (ntb.Device, *exec.Cmd) {
	t.Helper()
	ours, theirs := cables(t)
	f, err := theirs.File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=echo")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	f.Close()
	theirs.Close()
	d, err := New(ours, small)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, cmd
}

// ask sends v, and waits for the peer's answer.
func ask(d ntb.Device, v uint64) error {
	out := d.Outbound()
	out.Publish64(0, v)
	d.RingDoorbell(0)
	for ntb.Load64(d.Inbound(), 0) != v+1 {
		if err := d.WaitDoorbell(0); err != nil {
			return err
		}
	}
	return nil
}

func TestTwoProcesses(t *testing.T) {
	d, cmd := startPeer(t)
	for v := range uint64(1000) {
		if err := ask(d, 10*v+10); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.Spad(0); got != uint32(cmd.Process.Pid) {
		t.Errorf("scratchpad is %d, want the peer's process id %d", got, cmd.Process.Pid)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the peer did not end well: %v", err)
	}
}

func TestDeathOfThePeerTakesTheLinkDown(t *testing.T) {
	d, cmd := startPeer(t)
	if err := ask(d, 1); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.WaitDoorbell(1); err != ntb.ErrLinkDown {
			t.Errorf("WaitDoorbell: %v, want ErrLinkDown", err)
		}
	}
	if d.LinkUp() {
		t.Error("the link is up")
	}
	if got := ntb.Load64(d.Inbound(), 0); got != 2 {
		t.Errorf("the dead peer's word is %d, want 2", got)
	}
	out := d.Outbound()
	out.Publish64(0, 5) // the store vanishes, and does not fault
	d.RingDoorbell(0)
}

func TestAStoppedPeerKeepsItsLink(t *testing.T) {
	d, cmd := startPeer(t)
	if err := ask(d, 1); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !ws.Stopped() {
			t.Fatalf("peer did not stop: %v, status %#x", err, ws)
		}
		break
	}
	answered := make(chan error, 1)
	go func() { answered <- ask(d, 7) }()
	if !d.LinkUp() {
		t.Error("the link of a stopped peer is down")
	}
	select {
	case <-answered:
		t.Error("a stopped peer answered")
	default:
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if !d.LinkUp() {
		t.Error("the link went down")
	}
}
