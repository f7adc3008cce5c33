package benchmarks

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// twin is testdata/libsdp.c in Go.
func twin(args []string) error {
	f, err := sdp.Open(os.Getenv("SDP_FABRIC"))
	if err != nil {
		return err
	}
	defer f.Close()
	if args[0] == "serve" {
		ln, err := f.Listen("sdp", "localhost:0")
		if err != nil {
			return err
		}
		defer ln.Close()
		fmt.Println(ln.Addr())
		go serveAll(ln, nil)
		return untilParentEnds()
	}
	for {
		var op op
		var size, count int
		if _, err := fmt.Scan(&op, &size, &count); err != nil {
			return nil // the parent has no more
		}
		took, err := twinOnce(f, args[1], op, size, count)
		if err != nil {
			return err
		}
		fmt.Println(took.Nanoseconds())
	}
}

func twinOnce(f *sdp.Fabric, address string, op op, size, count int) (time.Duration, error) {
	c, err := f.Dial("sdp", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Write(command(op, size, 0)); err != nil {
		return 0, err
	}
	b := make([]byte, size)
	var begin time.Time
	for i := -count / 8; i < count; i++ {
		if i == 0 {
			begin = time.Now()
		}
		if _, err := c.Write(b); err != nil {
			return 0, err
		}
		if op == opEcho {
			if _, err := io.ReadFull(c, b); err != nil {
				return 0, err
			}
		}
	}
	if op == opSink {
		if err := c.(*sdp.Conn).CloseWrite(); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, b[:8]); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// buildLibSDP installs libsdp and builds testdata/libsdp.c for it.
func buildLibSDP(b *testing.B) string {
	if _, err := exec.LookPath("gcc"); err != nil {
		missing(b, "gcc")
	}
	dir := b.TempDir()
	program, lib := filepath.Join(dir, "libsdp"), filepath.Join(dir, "lib")
	for _, command := range [][]string{
		{"../cmd/libsdp/install", dir},
		{"gcc", "-O2", "-pthread", "-Wall", "-Wextra", "-Werror", "-I" + filepath.Join(dir, "include"), "-o", program, "testdata/libsdp.c", "-L" + lib, "-lsdp", "-Wl,-rpath," + lib},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	return program
}

// BenchmarkLibSDP measures two processes in C, and two in Go that do the same. An operation of the benchmark is a round, in which each
// pair has its turn. Figures are medians of the rounds.
func BenchmarkLibSDP(b *testing.B) {
	program, name := buildLibSDP(b), freshName()
	b.Setenv("SDP_FABRIC", "shm:"+name)
	b.Cleanup(func() {
		if err := removeFabric(name); err != nil {
			b.Error(err)
		}
	})
	inC := func(args ...string) *process {
		p, err := startCommand(exec.Command(program, args...))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := p.end(); err != nil {
				b.Errorf("%v: %v", args, err)
			}
		})
		return p
	}
	inGo := func(args ...string) *process { return startFor(b, "twin", nil, args...) }
	clients := map[string]*process{}
	for language, begin := range map[string]func(...string) *process{"c": inC, "go": inGo} {
		address, err := begin("serve").line()
		if err != nil {
			b.Fatal(err)
		}
		clients[language] = begin("client", address)
	}
	languages := []string{"c", "go"}
	ask := func(language string, op op, size, count int) float64 {
		p := clients[language]
		fmt.Fprintln(p.stdin, op, size, count)
		line, err := p.line()
		if err != nil {
			b.Fatal(err)
		}
		var ns float64
		fmt.Sscan(line, &ns)
		return ns / float64(count)
	}
	b.ResetTimer()
	for _, m := range []struct {
		name  string
		op    op
		size  int
		count int
	}{{"roundtrip64", opEcho, 64, 20000}, {"oneway64k", opSink, 64 << 10, 10000}} {
		ns := measure(b, languages, func(language string) float64 { return ask(language, m.op, m.size, m.count) })
		for _, language := range languages {
			b.ReportMetric(ns[language], language+"-"+m.name+"-ns")
		}
	}
}
