package suite

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pair returns a connection, dialled and accepted.
func pair(t *testing.T) (dialled, accepted net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if dialled, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close() })
	if accepted, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return dialled, accepted
}

func isTCP(c net.Conn) bool { return fmt.Sprintf("%T", c) == "*net.TCPConn" }

func TestTheLibraryIsPatchedToo(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	defer s.Close()
	r, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, err := io.ReadAll(r.Body); err != nil || string(b) != "hello" {
		t.Fatal(string(b), err)
	}
}

func TestHalfClose(t *testing.T) {
	d, a := pair(t)
	if err := d.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
}

// What is set may do nothing, but it can be set.
func TestOptions(t *testing.T) {
	d, a := pair(t)
	c := d.(*net.TCPConn)
	for _, err := range []error{c.SetNoDelay(false), c.SetKeepAlive(true), c.SetKeepAlivePeriod(time.Minute),
		c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n, b := 0, make([]byte, 2)
	look := func(fd uintptr) bool {
		n, _, err = syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return err != syscall.EAGAIN
	}
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if e := raw.Read(look); e != nil || err != nil || string(b[:max(n, 0)]) != "x" {
		t.Fatal(e, err, n)
	}
}

type counted struct {
	*net.TCPConn
	copies int
}

func (c *counted) ReadFrom(r io.Reader) (int64, error) {
	c.copies++
	return c.TCPConn.ReadFrom(r)
}

func TestEmbeds(t *testing.T) {
	d, a := pair(t)
	c := &counted{TCPConn: d.(*net.TCPConn)}
	n, err := io.Copy(net.Conn(c), io.LimitReader(strings.NewReader("hello"), 4))
	if err != nil || n != 4 || c.copies != 1 {
		t.Fatal(n, err, c.copies)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(a, got); err != nil || string(got) != "hell" {
		t.Fatal(string(got), err)
	}
}

func TestType(t *testing.T) {
	t.Run("dialled", func(t *testing.T) {
		if d, _ := pair(t); !isTCP(d) {
			t.Fatal("not TCP")
		}
	})
	t.Run("accepted", func(t *testing.T) {
		if _, a := pair(t); !isTCP(a) {
			t.Skip("not TCP")
		}
	})
	t.Run("none", func(*testing.T) {})
}

func TestPanics(t *testing.T) {
	if d, _ := pair(t); !isTCP(d) {
		panic("not TCP")
	}
}

func TestAfterThePanic(t *testing.T) { pair(t) }

func TestExits(t *testing.T) {
	if d, _ := pair(t); !isTCP(d) {
		os.Exit(3)
	}
}

func TestFailsOverBoth(t *testing.T) { t.Fatal("it fails") }
