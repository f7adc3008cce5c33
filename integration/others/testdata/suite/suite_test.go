package suite

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
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
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	t.Log(ln.(*net.TCPListener).Addr())
}

func TestAfterThePanic(t *testing.T) { pair(t) }

func TestExits(t *testing.T) {
	if d, _ := pair(t); !isTCP(d) {
		os.Exit(3)
	}
}

func TestFailsOverBoth(t *testing.T) { t.Fatal("it fails") }
