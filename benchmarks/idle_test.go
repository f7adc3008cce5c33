package benchmarks

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkIdle has connections idle after one exchange on each. Its figures are CPU time as
// a part of one processor, and memory (PSS) of each, in both processes together. The
// processes have done nothing else before.
func BenchmarkIdle(b *testing.B) {
	for _, n := range []int{1000} {
		for _, network := range networks {
			b.Run(fmt.Sprintf("connections=%d/transport=%s", n, network), func(b *testing.B) {
				d := time.Duration(b.N) * 10 * time.Millisecond
				p := startFor(b, "idle", nil, network, strconv.Itoa(n), d.String())
				if _, err := p.line(); err != nil {
					b.Fatal(err)
				}
				b.ResetTimer()
				line, err := p.line()
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				var cpu, memory float64
				if _, err := fmt.Sscan(line, &cpu, &memory); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(100*cpu, "cpu-%")
				b.ReportMetric(memory/1024, "KiB/conn")
			})
		}
	}
}

// idle is the role of the process that has the connections. Its arguments are the network,
// how many, and how long. It writes a line when all are idle, and then the part of a
// processor and the bytes of each connection.
func idle(args []string) (err error) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	p, err := openPair("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	asked, err := p.open("unix", opUsage, 1)
	if err != nil {
		return err
	}
	defer asked.Close()
	before, err := usageOfBoth(asked, true)
	if err != nil {
		return err
	}
	for range n {
		c, err := p.open(args[0], opEcho, 64)
		if err != nil {
			return err
		}
		defer c.Close()
		b := make([]byte, 64)
		if _, err := c.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
	}
	after, err := usageOfBoth(asked, true)
	if err != nil {
		return err
	}
	time.Sleep(time.Second) // what still wakes up then does so for good
	fmt.Println("idle")
	begin, err := usageOfBoth(asked, false)
	if err != nil {
		return err
	}
	start := time.Now()
	time.Sleep(d)
	took := time.Since(start)
	end, err := usageOfBoth(asked, false)
	if err != nil {
		return err
	}
	fmt.Println(float64(end.CPU-begin.CPU)/float64(took), float64(after.Memory-before.Memory)/float64(n))
	return untilParentEnds()
}

// used is what a process has used. It goes over a connection.
type used struct {
	CPU    int64 // ns
	Memory int64 // PSS in bytes, without garbage
}

// usageOfBoth returns what this process and that of a connection of opUsage use.
func usageOfBoth(c net.Conn, memory bool) (u used, err error) {
	ask := []byte{0}
	if memory {
		ask[0] = 1
	}
	if _, err := c.Write(ask); err != nil {
		return u, err
	}
	if err := binary.Read(c, binary.LittleEndian, &u); err != nil {
		return u, err
	}
	own, err := usage(memory)
	return used{u.CPU + own.CPU, u.Memory + own.Memory}, err
}

// usage returns what this process uses.
func usage(memory bool) (u used, err error) {
	if u.CPU, err = cpuTime(os.Getpid()); err != nil || !memory {
		return u, err
	}
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return u, err
	}
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(in.Text(), "Pss: %d kB", &kib); err == nil {
			u.Memory = kib << 10
		}
	}
	return u, nil
}

// cpuTime returns the CPU time of a process in ns, by its clock: clock_getcpuclockid(3).
func cpuTime(pid int) (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(^int32(pid)<<3|2, &t)
	return t.Nano(), err
}
