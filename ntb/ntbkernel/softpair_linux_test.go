//go:build linux && (amd64 || arm64)

package ntbkernel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Modules that tests load themselves, and where the functions of ntb_softpair are.
const (
	modulesDir    = "/modules"
	softpair      = "ntb_softpair"
	softFunctions = "/sys/bus/pci/drivers/" + softpair
)

// loadModule loads a module.
func loadModule(t *testing.T, name, parameters string) {
	t.Helper()
	f, err := os.Open(modulesDir + "/" + name + ".ko")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.FinitModule(int(f.Fd()), parameters, 0), "%s %s", name, parameters)
}

// unloadModule unloads a module, if it is loaded. In use, it stays, and the error is EAGAIN.
func unloadModule(name string) error {
	if err := unix.DeleteModule(name, unix.O_NONBLOCK); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// softPair has a bridge in software, of the kind that parameters of ntb_softpair say, be between the functions that
// bridgeAddresses returns. No other client of the bus than ntb_cdev is loaded. The end of the test has again what was there.
func softPair(t *testing.T, parameters string) [2]string {
	t.Helper()
	addresses := bridgeAddresses(t)
	haveSoftPair(t, parameters)
	return addresses
}

func haveSoftPair(t *testing.T, parameters string) {
	t.Helper()
	if _, err := os.Stat(softFunctions); errors.Is(err, fs.ErrNotExist) {
		t.Skip(softpair + " does not have the bridge")
	}
	reload := func(parameters string) {
		for _, m := range []string{"ntb_tool", "ntb_cdev", softpair} {
			require.NoError(t, unloadModule(m), m)
		}
		loadModule(t, softpair, parameters)
		loadModule(t, "ntb_cdev", "")
	}
	reload(parameters)
	t.Cleanup(func() {
		reload("")
		loadModule(t, "ntb_tool", "")
	})
}

// kernelLog is what the kernel says from a moment on.
type kernelLog struct{ fd int }

func openKernelLog(t *testing.T) kernelLog {
	t.Helper()
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	_, err = unix.Seek(fd, 0, unix.SEEK_END)
	require.NoError(t, err)
	return kernelLog{fd}
}

var complaint = regexp.MustCompile(`BUG|WARNING|KASAN|Oops|Call Trace|INFO:|was not closed|general protection`)

// lines returns what the kernel has said since the last call.
func (l kernelLog) lines() []string {
	var found []string
	for b := make([]byte, 8192); ; {
		n, err := unix.Read(l.fd, b)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return found
		case err != nil:
			return append(found, "BUG of the test: /dev/kmsg: "+err.Error()) // EPIPE: lines were lost
		}
		_, line, _ := strings.Cut(string(b[:n]), ";")
		line, _, _ = strings.Cut(line, "\n")
		found = append(found, line)
	}
}

// complaints returns the lines by which the kernel or the module says that something is wrong, and what follows them.
func (l kernelLog) complaints() string {
	lines := l.lines()
	first := slices.IndexFunc(lines, complaint.MatchString)
	if first < 0 {
		return ""
	}
	return strings.Join(lines[first:], "\n")
}

// notFreed returns what a module has allocated and not freed, as the kernel tells where it notes that (slub_debug=U).
func notFreed(t *testing.T, module string) string {
	t.Helper()
	mountDebug(t)
	const dir = "/sys/kernel/debug/slab"
	caches, err := os.ReadDir(dir)
	require.NoError(t, err)
	var found strings.Builder
	for _, c := range caches {
		text, err := os.ReadFile(dir + "/" + c.Name() + "/alloc_traces")
		require.NoError(t, err)
		for entry := range strings.SplitSeq(string(text), "\n\n") {
			// Who called: behind the line with the count, the function itself and its caller. What sysfs keeps of a
			// module is further below.
			lines := strings.SplitN(strings.TrimSpace(entry), "\n", 4)
			if strings.Contains(strings.Join(lines[:min(3, len(lines))], "\n"), "["+module+"]") {
				fmt.Fprintf(&found, "%s: %s\n", c.Name(), entry)
			}
		}
	}
	return found.String()
}

func mountDebug(t *testing.T) {
	t.Helper()
	if err := unix.Mount("debugfs", "/sys/kernel/debug", "debugfs", 0, ""); err != nil {
		require.ErrorIs(t, err, syscall.EBUSY)
	}
}

// A bridge that the module cannot serve is refused, and the log says why.
func TestModuleRefusesBridges(t *testing.T) {
	for parameters, want := range map[string]string{
		"ports=3":       "2 peers, want 1",
		"scratchpads=3": "3 scratchpads, want 4",
		"windows=4096":  "windows of at most 0x0000000000001000 bytes, buffer_size of 16777216: want 65536 or more",
		"outbound=1":    "the peer says where its stores go here, and this side could not end them",
	} {
		t.Run(parameters, func(t *testing.T) {
			log := openKernelLog(t)
			addresses := softPair(t, parameters)
			_, err := openNode(thisSystem, addresses[0])
			require.ErrorIs(t, err, syscall.ENODEV)
			require.ErrorContains(t, err, "dmesg says why")
			require.Contains(t, strings.Join(log.lines(), "\n"), "ntb_cdev "+addresses[0]+": "+want)
		})
	}
}

// Windows may want memory that is aligned as there is none. Each side says so once, and what helps, and
// learns of the other.
func TestModuleHasNoWindow(t *testing.T) {
	log := openKernelLog(t)
	addresses := softPair(t, "align=1073741824")
	for _, address := range addresses {
		n := openEnd(t, address)
		var s State
		await(t, "the state", func() bool { s = look(t, n); return s.NoWindow && s.PeerNoWindow })
		require.ErrorContains(t, s.missing(address), "no memory of this host fits a window")
		s.NoWindow = false
		require.ErrorContains(t, s.missing(address), "the other host has no window")
		require.ErrorContains(t, thisSystem.unusable(address), "no memory of this host fits a window")
		require.NoError(t, n.close())
		await(t, "a look", func() bool { return thisSystem.unusable(address) != nil })
	}
	said := strings.Join(log.lines(), "\n")
	for _, address := range addresses {
		require.Equal(t, 1, strings.Count(said, "ntb_cdev "+address+": windows want memory aligned to 1048576 KiB, which there is not: "+
			"boot with an IOMMU or cma=2048M, or have the firmware make BARs of at most 2048 KiB"), said)
		require.Equal(t, 1, strings.Count(said, "ntb_cdev "+address+": the other host has no window: its log says what helps"), said)
	}
}

// A side without a process hears of the other's, also with one doorbell, which is that of the words too, and with none.
func TestModuleHearsOfProcesses(t *testing.T) {
	for _, parameters := range []string{"doorbells=1", "unsafe=1"} {
		t.Run(parameters, func(t *testing.T) {
			addresses := softPair(t, parameters)
			for _, address := range addresses {
				n := openEnd(t, address)
				ready(t, n)
				require.NoError(t, n.close())
			}
			time.Sleep(3 * time.Second) // neither side looks without a doorbell any more
			ready(t, openEnd(t, addresses[0]))
		})
	}
}

// A machine with a bridge does not sleep.
func TestModuleRefusesToSleep(t *testing.T) {
	log := openKernelLog(t)
	softPair(t, "")
	await(t, "the module to have the ports", func() bool {
		entries, err := os.ReadDir(driver("ntb_cdev"))
		require.NoError(t, err)
		return len(entries) >= 4 // two ports beside bind and unbind
	})
	states, err := os.ReadFile("/sys/power/state")
	if !strings.Contains(string(states), "freeze") {
		t.Skipf("this kernel does not sleep: %s, %v", states, err)
	}
	require.ErrorIs(t, os.WriteFile("/sys/power/state", []byte("freeze"), 0), syscall.EBUSY)
	require.Contains(t, strings.Join(log.lines(), "\n"), "unload ntb_cdev before this machine sleeps")
}

// setCable has the ends of the bridge in software be connected, or not.
func setCable(t *testing.T, to bool) {
	t.Helper()
	value := map[bool]string{true: "Y", false: "N"}[to]
	require.NoError(t, os.WriteFile("/sys/module/"+softpair+"/parameters/cable", []byte(value), 0))
}

// Pages that are mapped while the link goes down show nothing of the peer's memory after that.
func TestModuleFaultsBesideCuts(t *testing.T) {
	addresses := softPair(t, "")
	n, other := openEnd(t, addresses[0]), openEnd(t, addresses[1])
	page := os.Getpagesize()
	for round := range 20 {
		own, _ := mapEnd(t, other)
		s := ready(t, n)
		var maps [][]byte
		began, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				m, err := mapRange(n, s.peerOffset, int(s.peerSize), readWrite, unix.MAP_SHARED)
				if err != nil {
					return // the link is down
				}
				for at := 0; at < len(m); at += page {
					m[at] = 1
				}
				if len(maps) == 0 {
					close(began)
				}
				maps = append(maps, m)
			}
		}()
		<-began
		time.Sleep(time.Duration(round%5) * time.Millisecond)
		setCable(t, false)
		<-ended
		for _, m := range maps {
			for at := 0; at < len(m); at += page {
				m[at] = 0x77
			}
			require.NoError(t, unix.Munmap(m))
		}
		require.Zero(t, bytes.Count(own, []byte{0x77}), "round %d, of %d mappings", round, len(maps))
		setCable(t, true)
	}
}

// No doorbell is lost beside others, and events may be exchanged meanwhile.
func TestModuleRingsBesideRings(t *testing.T) {
	addresses := softPair(t, "clear_delay=1000")
	a, b := openEnd(t, addresses[0]), openEnd(t, addresses[1])
	own, _ := mapEnd(t, b) // which was opened last, so a has heard of that too
	_, peer := mapEnd(t, a)
	e, err := newEvents(2)
	require.NoError(t, err)
	defer e.close()
	require.NoError(t, b.setEvents(e.fds))
	out := ntb.MappedWindow(peer, ntb.Uncached)
	const rings = 5
	for round := range uint64(30) {
		last := (round + 1) * rings
		require.NoError(t, e.files[1].SetReadDeadline(time.Now().Add(guard)))
		var senders sync.WaitGroup
		for at := range 2 {
			senders.Go(func() {
				for i := round*rings + 1; i <= last; i++ {
					out.Publish64(8*at, i)
					_ = a.ring(0)
				}
			})
		}
		for ntb.Load64(own, 0) < last || ntb.Load64(own, 8) < last {
			require.NoError(t, e.wait(1), "round %d", round)
		}
		senders.Wait()
	}
	stop := make(chan struct{})
	var ringing sync.WaitGroup
	ringing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = a.ring(0)
			}
		}
	})
	for range 500 {
		other, err := newEvents(2)
		require.NoError(t, err)
		require.NoError(t, b.setEvents(other.fds))
		require.NoError(t, other.close())
	}
	close(stop)
	ringing.Wait()
}
